"""`matchattention models` tells which networks have weights."""

from matchattention.cli.main import main
from matchattention.models.checkpoint import shipped
from matchattention.models.registry import list_models


def test_networks_with_weights_come_first_and_apart(capsys) -> None:
    assert main(["models"]) == 0
    trained, _, rest = capsys.readouterr().out.partition("without weights here")
    names = {line.split()[0] for line in trained.splitlines()[1:]}
    assert names == set(shipped()) & set(list_models())
    assert {line.split()[0] for line in rest.splitlines()[1:]} == set(list_models()) - names
