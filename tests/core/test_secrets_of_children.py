"""A child job may have the secrets of its parent, from where the parent has them; and no others."""

from __future__ import annotations

import pytest

from iris_cli.errors import UsageError
from tests.core.test_children import parent
from tests.support.inside import Inside


def test_a_secret_of_the_parent_comes_from_where_the_parent_has_it() -> None:
    lab = parent(secrets=("TOKEN", "KEY=@/home/me/key"))
    Inside(lab).submit(name="eval", secrets=("KEY", "TOKEN"))
    job = lab.the_job("train/eval")
    assert (job.secrets, job.secret_files) == (("KEY", "TOKEN"), {"KEY": "/home/me/key"})


@pytest.mark.parametrize("name", ["AWS_SECRET", "TOKEN=@/etc/shadow", "TOKEN=x"])
def test_no_task_can_name_a_secret_or_a_file_of_the_operators(name: str) -> None:
    with pytest.raises(UsageError, match="is not a secret of train"):
        Inside(parent(secrets=("TOKEN",))).submit(secrets=(name,))
