"""Everything that iris prints beside the views of a scene (test_snapshots.py): command lines and their scenes."""

from tests.render.pictures import books, hostile, jobs, logs, setup, workers

PICTURES = {
    **jobs.PICTURES,
    **workers.PICTURES,
    **logs.PICTURES,
    **setup.PICTURES,
    **books.PICTURES,
    **hostile.PICTURES,
}
