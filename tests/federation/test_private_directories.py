"""The directories and commands of a federation whose nodes name their data in node.toml."""

from __future__ import annotations

import pathlib
import tomllib

import numpy as np
import pytest

import fegsam as fg
from fegsam.cli import main
from fegsam.errors import SpecError
from fegsam.experiments.spec.study import load_study, parse_study
from fegsam.federation.deployment import load_node, load_server
from fegsam.federation.errors import FederationError
from fegsam.federation.hosting import check_node, node_of
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.identity import Claims
from fegsam.federation.protocol.server import FederationServer
from fegsam.federation.protocol.share import load_terms
from helpers import private_data as private
from helpers.in_memory import InMemory


@pytest.fixture
def log(folder):
    return private.write_log(folder / "wards.parquet")


@pytest.fixture
def nodes(folder, log, capsys) -> list[pathlib.Path]:
    """The directories of nodes, each with its data: a ward, a ward, a lake, a spool."""
    study = folder / "study.toml"
    study.write_text(private.STUDY)
    assert main(["federate", "init", str(folder / "fed"), str(study), "--host", "127.0.0.1"]) == 0
    assert "names its data under [data] in node.toml" in capsys.readouterr().out
    found = sorted((folder / "fed" / "nodes").iterdir())
    private.fill_in(found, log)
    return found


def check(node: pathlib.Path) -> list[str]:
    return check_node(load_node(node), enough=True)


def test_the_nodes_of_a_directory_give_the_numbers_of_a_run(folder, log, nodes, capsys) -> None:
    for agent, node in enumerate(nodes):
        assert main(["federate", "check", str(node)]) == 0
        assert capsys.readouterr().out.startswith(f"agent {agent}: ")
    side = load_server(folder / "fed" / "server")
    hosted = {f"node-{i}": node_of(load_node(node)) for i, node in enumerate(nodes)}
    transport = InMemory(hosted)
    assert isinstance(side.claims, Claims)
    server = FederationServer(
        load_terms(side.terms),
        transport,
        folder / "results",
        side.rules,
        claims=side.claims,
        clock=transport.clock,
    )
    final = server.run().history.data.final_params
    np.testing.assert_allclose(final, private.simulated(log).data.final_params, atol=1e-12)
    private_names = ("wards", "ward 0", "FrozenLake", "uniform.npy")
    sent = b"".join(payload for _, payload in transport.received)
    assert not any(name.encode() in sent for name in private_names)


DAMAGES = {
    "no [data]": ("", "has no table [data], but the study leaves the data to the nodes"),
    "unknown source": ('[data]\nsource = "lake"\n', "data.source is 'lake', which is not known"),
    "unknown key": ('[data]\nsource = "log"\npath = "a.csv"\nfile = 1\n', "data.file is not a"),
    "no file": ('[data]\nsource = "log"\npath = "gone.csv"\n', "gone.csv"),
    "two agents": ('[data]\nsource = "log"\npath = "{log}"\nby = "ward"\n', "feeds 2 agents"),
    "no such ward": (
        '[data]\nsource = "log"\npath = "{log}"\nby = "ward"\nvalue = "x"\n',
        "no row has 'x' in 'ward': name one of 'ward 0', 'ward 1'",
    ),
    "a value and no column": (
        '[data]\nsource = "log"\npath = "{log}"\nvalue = "ward 0"\n',
        "value is 'ward 0', but no column is named whose values tell agents apart: give by, too",
    ),
    "no column": (
        '[data]\nsource = "log"\npath = "{log}"\ncolumns = {{action = "act"}}\n',
        "there is no column 'act'",
    ),
    "other sizes": (
        '[data]\nsource = "live"\nenv_id = "CliffWalking-v1"\npolicy = "cliff.npy"\n',
        "has 48 states, but the study says 16",
    ),
    "numbers": (
        '[data]\nsource = "live"\nenv_id = "CartPole-v1"\npolicy = [[0.5, 0.5]]\n',
        "has 2 actions, but the study says 4",
    ),
    "short": (
        '[data]\nsource = "log"\npath = "{short}"\nby = "ward"\nvalue = "ward 0"\n',
        "20 transitions for num_steps 155: fewer steps or passes=8",
    ),
    "spool of vectors": (
        '[data]\nsource = "spool"\npath = "wide.spool"\n',
        "wide.spool has observations that are not state numbers",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_data_that_does_not_fit_is_refused_in_a_sentence(folder, log, nodes, name) -> None:
    text, sentence = DAMAGES[name]
    short = private.write_log(folder / "short.parquet", (2,))
    np.save(nodes[0] / "cliff.npy", fg.policies.uniform(48, 4))
    fg.Spool(nodes[0] / "wide.spool", width=2).close()
    private.name_data(nodes[0], text.format(log=log, short=short))
    with pytest.raises((fg.ProblemError, FileNotFoundError)) as refused:
        check(nodes[0])
    assert sentence in str(refused.value)


def test_a_short_log_is_refused_by_a_check_but_may_take_part(folder, nodes) -> None:
    short = private.write_log(folder / "short.parquet", (2,))
    private.name_data(nodes[0], f'[data]\nsource = "log"\npath = "{short}"\nby = "ward"\n')
    settings = load_node(nodes[0])
    (line,) = check_node(settings, enough=False)
    assert line == f"agent 0: {short}: 20 transitions in 2 episodes, for 155 steps"


def test_several_agents_of_a_node_have_a_table_each_or_a_value_each(folder, log) -> None:
    study = folder / "study.toml"
    study.write_text(private.STUDY)
    words = ["federate", "init", str(folder / "two"), str(study), "--host", "h", "--nodes", "2"]
    assert main(words) == 0
    node = folder / "two" / "nodes" / "node-0"
    assert load_node(node).agents == (0, 2)
    private.name_data(node, f'[data]\nsource = "log"\npath = "{log}"\nby = "ward"\n')
    assert [line[:8] for line in check(node)] == ["agent 0:", "agent 2:"]
    np.save(node / "uniform.npy", private.UNIFORM)
    both = private.WARD.format(log=log, ward=1) + private.LIVE
    private.name_data(
        node, both.replace("[data]", "[[data]]").replace("[[data]]", "# [data]\n[[data]]", 1)
    )
    assert len(check(node)) == 2


def test_a_charter_is_not_run_without_its_nodes(folder) -> None:
    study = folder / "study.toml"
    study.write_text(private.STUDY)
    with pytest.raises(fg.ProblemError, match="A charter has no data"):
        load_study(study).cells()[0].run()
    from fegsam.federation.local import run_locally

    with pytest.raises(FederationError, match="leaves the data to the nodes"):
        run_locally(study, folder / "out")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('[problem.behavior]\nkind = "uniform"', "problem.behavior is part of the data"),
        ('[problem.features]\nkind = "function"', "problem.features.kind is 'function'"),
        (
            '[problem.features]\nkind = "tiles"\nlow = [0.0]\nhigh = [0.0]\ntiles = 3\ntilings = 2',
            "give a low below its high",
        ),
    ],
)
def test_a_charter_has_no_behaviour_and_no_code(more, sentence) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_study(private.STUDY + more)


def test_a_study_names_all_that_the_nodes_agree_on(folder) -> None:
    np.save(folder / "target.npy", fg.policies.random(16, 4, 1, 0)[0])
    target = '[problem.target]\nkind = "table"\npolicies = "target.npy"'
    off = private.STUDY.replace('"q_learning"', '"off_policy_tabular_td"\nhorizon = 2')
    tiles = '[problem.features]\nkind = "tiles"\nlow = 0.0\nhigh = 1.0\ntiles = 3\ntilings = 2'
    linear = private.STUDY.replace('"q_learning"', '"on_policy_td"\nhorizon = 2')
    texts = [
        private.STUDY,
        private.STUDY.replace("0.95", "0.9"),
        off + '[problem.target]\nkind = "uniform"',
        off + target,
        linear + tiles,
        linear + tiles.replace("3", "4"),
    ]
    found = set()
    for text in texts:
        (folder / "study.toml").write_text(text)
        found.add(Experiment.from_spec(folder / "study.toml").fingerprint)
    assert len(found) == len(texts)


def test_what_init_writes_for_a_charter_is_a_node_file_to_fill_in(folder, nodes) -> None:
    text = (nodes[0] / "node.toml").read_text()
    assert "# [data]" in text
    assert set(tomllib.loads(text)) == {"node", "data"}
