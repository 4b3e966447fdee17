"""The schema's history (Alembic). `db.migrate` applies it; the statements are plain SQL in `sql/`."""

from pathlib import Path

from alembic import op

SQL = Path(__file__).parent / "sql"


def apply_sql(name: str) -> None:
    """Run one file of `sql/` in the migration's transaction.

    It goes straight to the driver: SQLAlchemy would take `:` and `%` in function bodies for parameters.
    """
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    connection.execute((SQL / name).read_text(encoding="utf-8"))
