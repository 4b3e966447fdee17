"""What a workspace asks of its calls: answered by phrases here, by a model in `llm/questions.py`."""
