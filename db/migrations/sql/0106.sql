SELECT index_call(c.id) FROM calls c WHERE c.id BETWEEN %(first)s AND %(last)s AND c.state = 'completed'
