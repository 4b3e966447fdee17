"""Quality of recognition: ground truth of calls, its file formats, and scores.

Depends on the domain only, not on the service or the database. The file formats need the extra
`switchboard-calls[evaluation]`.
"""
