"""`python -m serve_app.cli`, where the script is not on the path."""

from serve_app.cli import main

main()
