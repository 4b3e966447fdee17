"""A workspace's questions, answered by phrases here and by a model in `llm/questions.py`."""
