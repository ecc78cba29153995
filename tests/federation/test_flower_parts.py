"""The parts of a federation on Flower, each tested alone: credentials, directories, processes, the
node's app, the board."""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fegsam as fg
from fegsam.cli import main
from fegsam.federation import founding, local
from fegsam.federation.board import Board, EventSummary, described, table
from fegsam.federation.deployment import load_node, load_server
from fegsam.federation.flower import client as flower_client
from fegsam.federation.flower import server as flower_server
from fegsam.federation.flower import supervisor
from fegsam.federation.flower.grid_transport import PAYLOAD, RECORD, GridTransport, packed, unpacked
from fegsam.federation.flower.processes import alive, end_all, environment, marked
from fegsam.federation.flower.supervisor import forget_apps, node_command
from fegsam.federation.founding import Entrance, init
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.share import load_share, load_terms, save_share
from fegsam.federation.protocol.state import append_event
from fegsam.federation.protocol.transport import Lost
from fegsam.federation.protocol.wire import FROM_NODE, Ask, Hello, Reply, decode, encode
from helpers.deployed import assert_equal, simulated, write_study
from helpers.requests import request

ROOT = pathlib.Path(__file__).parents[2]
STARTED = {"event": "started", "clock": 0.0, "round": 0, "rounds": 3, "agents": 2}
ROUND = {
    "event": "round",
    "clock": 1.0,
    "round": 0,
    "time": 50,
    "asked": 2,
    "answered": 1,
    "missing": [1],
    "squared_error": 0.25,
    "seconds": 8.0,
    "bytes_up": 10,
    "bytes_down": 20,
}


@pytest.fixture(autouse=True)
def _in_a_task(monkeypatch) -> None:
    """Only task processes make messages, and Flower tells each of them who it is."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def make(folder: pathlib.Path, **changes) -> list[pathlib.Path]:
    """The directories of a federation of 4 agents."""
    entrance = {
        "hosts": ["hub.example.org", "::1"],
        "port": 8000,
        "insecure": False,
        "transport": "flower",
    }
    entrance = Entrance(**{name: changes.pop(name, entrance[name]) for name in entrance})
    return init(folder / "fed", write_study(folder), entrance, **{"num_nodes": 2} | changes)


def test_the_servers_certificate_is_signed_for_its_hosts_and_all_keys_are_private(tmp_path) -> None:
    make(tmp_path)
    server = tmp_path / "fed" / "server"
    authority = x509.load_pem_x509_certificate((server / "ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((server / "server.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.example.org", "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [
        "::1",
        "127.0.0.1",
    ]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for path in (tmp_path / "fed").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_each_node_has_a_key_of_its_own_that_the_server_knows(tmp_path) -> None:
    nodes = make(tmp_path, num_nodes=4)
    known = []
    for node in nodes:
        private = load_ssh_private_key((node / "node.key").read_bytes(), None)
        public = load_ssh_public_key(
            (tmp_path / "fed" / "server" / "nodes" / f"{node.name}.pub").read_bytes()
        )
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.public_key() == public
        assert not any(path.suffix == ".key" and path.name != "node.key" for path in node.iterdir())
        known.append((node / "node.key").read_bytes())
    assert len(set(known)) == 4


def test_the_directories_say_what_they_were_made_for(tmp_path) -> None:
    nodes = make(tmp_path, seed=11, rules={"quorum": 3, "round_timeout": 20.0})
    side = load_server(tmp_path / "fed" / "server")
    assert (side.listen, side.rules.quorum, side.rules.round_timeout) == (
        ("0.0.0.0", 8000),
        3,
        20.0,
    )
    assert side.tls is not None
    assert [key.name for key in side.node_keys] == ["node-0.pub", "node-1.pub"]
    read = [load_node(node) for node in nodes]
    assert [node.agents for node in read] == [(0, 2), (1, 3)]
    assert {node.server for node in read} == {"hub.example.org:8000"}
    salt = load_terms(side.terms).salt
    assert len(salt) == 32
    given = Experiment.from_spec(tmp_path / "study.toml", seed=11, salt=salt).fingerprint
    assert load_terms(side.terms).fingerprint == given
    shares = [load_share(node.experiment) for node in read]
    assert {share.fingerprint for share in shares} == {given}
    assert [share.present for share in shares] == [(0, 2), (1, 3)]


def test_a_rule_that_cannot_be_parted_brings_its_study(tmp_path) -> None:
    make(tmp_path)
    experiment = Experiment.from_spec(tmp_path / "study.toml")
    lone = Experiment(
        fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]], num_agents=2),
        fg.LinearSA([[[[-1.0]], [[-2.0]]]], [[[0.0], [1.0]]]),
        step_size=0.1, sync_period=5, num_steps=20, seed=3,
    )  # fmt: skip
    (tmp_path / "a").mkdir()
    said = founding.hand_over(lone, tmp_path / "study.toml", [0], tmp_path / "a")
    assert said == {"experiment": "study.toml", "seed": 3, "salt": ""}
    config = {
        "experiment": str(tmp_path / "a" / "study.toml"),
        "seed": 7,
        "agents": "0",
        "state-dir": str(tmp_path / "state"),
    }
    context = Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})
    (hello,) = decode(
        ask(context, packed(encode(Ask(experiment.fingerprint))))[RECORD][PAYLOAD], FROM_NODE
    )
    assert hello.agents == (0,)


def test_plain_text_must_be_asked_for_and_makes_no_keys(tmp_path) -> None:
    nodes = make(tmp_path, insecure=True, hosts=["localhost"])
    assert not list((tmp_path / "fed").rglob("*.key"))
    side = load_server(tmp_path / "fed" / "server")
    assert (side.tls, side.listen) == (None, ("127.0.0.1", 8000))
    assert load_node(nodes[0]).authority is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_nodes": 5}, "give one from 1 to 4, the number of agents in the study"),
        ({"num_nodes": 0}, "the number of nodes is 0"),
        ({"hosts": []}, "no host"),
        ({"hosts": ["hüb"]}, "hüb"),
        ({"rules": {"quorun": 3}}, "quorun"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_sentence(tmp_path, changes, said) -> None:
    with pytest.raises(fg.ProblemError, match=said):
        make(tmp_path, **changes)


def test_credentials_are_never_written_over(tmp_path) -> None:
    make(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "fed").rglob("*") if path.is_file()}
    with pytest.raises(fg.ProblemError, match="never overwritten"):
        make(tmp_path)
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("server/federation.toml", ("listen", "lissen"), "lissen"),
        ("server/federation.toml", ("0.0.0.0:8000", "0.0.0.0"), "host:port"),
        ("nodes/node-0/node.toml", ("    0,", '    "all",'), "agents"),
        ("nodes/node-0/node.toml", ("[node]", "[node"), "line"),
    ],
)
def test_a_file_that_was_spoilt_is_named(tmp_path, capsys, file, change, said) -> None:
    make(tmp_path)
    path = tmp_path / "fed" / file
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    action = (path.parent.parent.name == "nodes" and "node") or "server"
    rest = ["-o", str(tmp_path / "out")] if action == "server" else []
    assert main(["federate", action, str(path.parent), *rest]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert said in error
    assert error.count("\n") == 1


def test_init_says_how_to_start_and_status_where_it_stands(tmp_path, capsys) -> None:
    study, place = write_study(tmp_path), tmp_path / "fed"
    assert (
        main(["federate", "init", str(place), str(study), "--host", "10.0.0.1", "--nodes", "2"])
        == 0
    )
    out = capsys.readouterr().out
    assert f"fegsam federate server {place / 'server'}" in out
    assert all(
        f"fegsam federate node {place / 'nodes' / name}" in out for name in ("node-0", "node-1")
    )
    assert main(["federate", "status", str(tmp_path)]) == 2
    for event in (STARTED, ROUND):
        append_event(tmp_path / "events.jsonl", event)
    capsys.readouterr()
    assert main(["federate", "status", str(tmp_path)]) == 0
    assert (
        capsys.readouterr().out
        == "running: round 1/3, time 50, squared error 2.500e-01, 8.0 s a round, 1 of 2 answered\n"
    )


def test_a_board_shows_rounds_and_troubles_as_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    died = {"event": "node-died", "clock": 2.0, "node": "node-1"}
    with Board(stream) as board:
        for event in (STARTED, ROUND, died, {"event": "finished", "clock": 3.0, "round": 3}):
            board.show(event)
    assert stream.getvalue().splitlines() == [
        "running: round 1/3, time 50, squared error 2.500e-01, 8.0 s a round, 1 of 2 answered",
        described(died),
        "finished: round 1/3, time 50, squared error 2.500e-01, 8.0 s a round, 1 of 2 answered",
    ]


def test_on_a_terminal_it_is_a_table_of_agents() -> None:
    from rich.console import Console

    standing = EventSummary()
    for event in (
        STARTED,
        ROUND,
        {"event": "refused", "clock": 2.0, "agents": [1], "reason": "not finite"},
    ):
        standing.take(event)
    console = Console(file=io.StringIO(), width=100)
    console.print(table(standing))
    shown = console.file.getvalue()
    assert "round 1/3" in shown
    assert re.search(r"1 +│ 1 ", shown)
    assert "not finite" in shown

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    with Board(screen := Screen()) as board:
        board.show(STARTED)
        board.show(ROUND)
    assert "rounds missed" in screen.getvalue()


def test_all_that_carries_the_mark_is_ended_also_what_left_its_parent(tmp_path) -> None:
    mark, file = f"test-{time.time_ns()}", tmp_path / "pid"
    sleeper = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(600)"
    )
    code = (
        "import pathlib, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=True, "
        "stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        f"pathlib.Path({str(file)!r}).write_text(str(child.pid))"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(tmp_path, mark), check=True)
    orphan = int(file.read_text())
    assert marked(mark) == [orphan]
    assert alive(orphan, mark)
    assert not alive(orphan, "another")
    end_all(mark)
    assert marked(mark) == []
    assert not alive(orphan, mark)


@pytest.fixture
def node(tmp_path) -> Context:
    share = tmp_path / "share"
    save_share(Experiment.from_spec(write_study(tmp_path)), [0, 2], share)
    config = {"experiment": str(share), "agents": "0,2", "state-dir": str(tmp_path / "state")}
    return Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})


def ask(context: Context, content: RecordDict) -> RecordDict:
    message = Message(content, dst_node_id=2, message_type=MessageType.TRAIN)
    return flower_client.app(message, context).content


def test_a_node_sends_what_the_list_says_and_nothing_beside(node) -> None:
    experiment = load_share(str(node.node_config["experiment"]))
    kinds = []
    for payload in (
        encode(Ask(experiment.fingerprint)),
        request(experiment.fingerprint, 0, (0, 2), (50,), experiment.start[None]),
        encode(Ask("00" * 32)),
        b"",
        b"random bytes",
    ):
        content = ask(node, packed(payload))
        assert list(content) == [RECORD]
        assert list(content[RECORD]) == [PAYLOAD]
        kinds.append([type(message) for message in decode(content[RECORD][PAYLOAD], FROM_NODE)])
    assert kinds[:2] == [[Hello], [Reply, Reply]]
    assert len(node.state) == 0


def test_a_message_without_a_payload_is_answered_like_one_that_cannot_be_read(node) -> None:
    for content in (
        RecordDict(),
        RecordDict({RECORD: ConfigRecord({PAYLOAD: "text"})}),
        RecordDict({"x": ConfigRecord({"y": 1})}),
    ):
        (message,) = decode(ask(node, content)[RECORD][PAYLOAD], FROM_NODE)
        assert message.reason.value == "damaged request"


def test_what_is_wrong_on_a_node_is_not_told_to_the_server(node, capfd) -> None:
    node.node_config["experiment"] = "/secret/place/study.toml"
    with pytest.raises(fg.ProblemError, match="its own log says why") as caught:
        ask(node, packed(b""))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert "secret" in capfd.readouterr().err


class _Grid:
    """Stands in for Flower's: gives ids, and back what it was told to, or what `answer` says."""

    def __init__(self, answer: Callable[[Message], Message] | None = None) -> None:
        self.pushed: list[Message] = []
        self.replies: list[Message] = []
        self.answer = answer

        self.connected = [3, 2**63 + 1]

    def get_node_ids(self):
        return self.connected

    def push_messages(self, messages):
        self.pushed += messages
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"m{len(self.pushed)}"
            self.replies += [] if self.answer is None else [self.answer(message)]
        return [f"m{len(self.pushed)}"]

    def pull_messages(self, identities):
        came, self.replies = (
            [r for r in self.replies if r.metadata.reply_to_message_id in identities],
            [],
        )
        return came


def test_the_transport_tells_replies_from_losses_and_whose_they_are() -> None:
    grid = _Grid()
    transport = GridTransport(grid, lifetime=60.0)
    assert transport.nodes() == ["3", str(2**63 + 1)]
    assert transport.receive(0.0) == []
    for node, payload in (("3", b"a"), ("3", b"b"), (str(2**63 + 1), b"a")):
        transport.send(node, payload)
    assert [message.metadata.dst_node_id for message in grid.pushed] == [3, 3, 2**63 + 1]
    assert [unpacked(message.content) for message in grid.pushed] == [b"a", b"b", b"a"]
    first, second, third = grid.pushed
    grid.replies = [
        Message(packed(b"said"), reply_to=second),
        Message(Error(5, "gone"), reply_to=third),
        Message(RecordDict(), reply_to=first),
    ]
    came = transport.receive(1.0)
    assert came[0] == ("3", b"said")
    assert [(node, type(what)) for node, what in came[1:]] == [(str(2**63 + 1), Lost), ("3", Lost)]
    grid.replies = [Message(packed(b"again"), reply_to=second)]
    assert transport.receive(0.0) == []


def test_a_question_that_a_node_has_before_it_is_not_repeated() -> None:
    grid = _Grid()
    transport = GridTransport(grid, lifetime=60.0)
    for _ in range(3):
        transport.send("3", b"ask")
        transport.nodes()
    assert len(grid.pushed) == 1
    # A node that left may have lost it.
    grid.connected = []
    transport.nodes()
    grid.connected = [3]
    transport.nodes()
    transport.send("3", b"ask")
    assert len(grid.pushed) == 2
    # What was answered may be asked again.
    grid.replies = [Message(packed(b"said"), reply_to=grid.pushed[1])]
    assert transport.receive(0.0) == [("3", b"said")]
    transport.send("3", b"ask")
    assert len(grid.pushed) == 3


@pytest.fixture
def results(tmp_path, monkeypatch) -> pathlib.Path:
    """Of a server whose app is to run in this process, with two nodes on the Grid."""
    make(tmp_path, insecure=True, rules={"poll": 0.01})
    output = tmp_path / "out"
    (output / flower_server.FLOWER_FOLDER).mkdir(parents=True)
    monkeypatch.setenv(flower_server.SERVER, str(tmp_path / "fed" / "server"))
    monkeypatch.setenv(flower_server.OUTPUT, str(output))
    return output


def answers(nodes: pathlib.Path, state: pathlib.Path) -> Callable[[Message], Message]:
    """What the two nodes on the Grid say."""

    def answer(message: Message) -> Message:
        agents = {3: "0,2", 2**63 + 1: "1,3"}[message.metadata.dst_node_id]
        share = nodes / ("node-0" if agents == "0,2" else "node-1") / "share"
        config = {"experiment": str(share), "agents": agents, "state-dir": str(state)}
        context = Context(
            run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={}
        )
        return flower_client.app(message, context)

    return answer


def test_the_server_app_runs_to_the_end_and_says_so(tmp_path, results) -> None:
    answer = answers(tmp_path / "fed" / "nodes", tmp_path / "state")
    flower_server.main(_Grid(answer), None)
    assert_equal(fg.load_history(results / "history.nc"), simulated(tmp_path / "study.toml"))
    job = flower_server.AppStatus.read(results / flower_server.FLOWER_FOLDER)
    assert job == flower_server.AppStatus(os.getpid(), "finished")
    flower_server.AppStatus.clear(results / flower_server.FLOWER_FOLDER)
    assert flower_server.AppStatus.read(results / flower_server.FLOWER_FOLDER) is None


def test_a_run_whose_history_was_cut_is_not_called_done_and_can_be_made_again(
    tmp_path, results, monkeypatch
) -> None:
    (tmp_path / "fed").rename(results / local.DEPLOYMENT)
    monkeypatch.setenv(flower_server.SERVER, str(results / local.DEPLOYMENT / "server"))
    starts = []

    class InProcess:
        def __init__(self, side, output, nodes, **_: object) -> None:
            self.answer = answers(results / local.DEPLOYMENT / "nodes", tmp_path / "state")

        def run(self) -> None:
            starts.append("run")
            flower_server.main(_Grid(self.answer), None)

    monkeypatch.setattr(supervisor, "Supervisor", InProcess)

    def run() -> pathlib.Path:
        settings = {"num_nodes": 2, "rules": {"poll": 0.01}, "insecure": True}
        settings["transport"] = "flower"
        return local.run_locally(tmp_path / "study.toml", results, **settings)

    path = run()
    whole = path.read_bytes()
    assert run() == path
    assert starts == ["run"]
    for content in (whole[: len(whole) // 2], whole[:-1], b"", whole[:9000] + b"x" + whole[9001:]):
        path.write_bytes(content)
        with pytest.raises(
            fg.ProblemError,
            match=r"history\.nc is damaged or not a history: remove it and run the same command",
        ):
            run()
    for other in (
        write_study(tmp_path / "state", rounds=3),
        write_study(tmp_path / "state", "off_policy_tabular_td"),
    ):
        simulated(other).save(path)
        with pytest.raises(
            fg.ProblemError, match=r"history\.nc is the history of another experiment"
        ):
            run()
    assert starts == ["run"]
    path.unlink()
    assert run().read_bytes() == whole
    assert starts == ["run", "run"]


RULE_STUDY = """
[study]
name = "rule"
seeds = [7]
[problem]
generator = "noise"
kernels = [[0.5, 0.5], [0.5, 0.5]]
[algorithm]
name = "stochastic_approximation"
rule = "rule.py:rule"
dim = 1
[run]
num_steps = 20
fixed_point = [0.5]
[grid]
num_agents = 2
sync_period = 5
step_size = 0.1
"""


def test_a_node_runs_the_code_of_its_study_only_if_that_is_trusted(
    tmp_path, capsys, monkeypatch
) -> None:
    """Whoever sets a federation up sends each node its directory; a rule of one's own lies in it as
    code."""
    marker = tmp_path / "marker"
    (tmp_path / "rule.py").write_text(
        f"open({str(marker)!r}, 'w').close()\ndef rule(params, y, kind, out):\n    out[0] = y - "
        "params[0]\n"
    )
    (tmp_path / "study.toml").write_text(RULE_STUDY)
    entrance = Entrance(["localhost"], 8000, insecure=True, transport="flower")
    node = init(tmp_path / "fed", tmp_path / "study.toml", entrance)[0]
    marker.unlink()

    started = []
    monkeypatch.setattr("os.execve", lambda *words: started.append(words))
    assert main(["federate", "node", str(node)]) == 2
    assert (
        "inputs/rule.py:rule, which the study names; if you trust its author, add --trust"
        in capsys.readouterr().err
    )
    assert not started
    assert not marker.exists()
    config = {
        "experiment": str(node / "study.toml"),
        "seed": 7,
        "agents": "0",
        "state-dir": str(tmp_path / "state"),
    }
    content = packed(encode(Ask("")))
    with pytest.raises(fg.ProblemError, match="the node cannot be set up"):
        ask(
            Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={}),
            content,
        )
    assert not marker.exists()

    main(["federate", "node", str(node), "--trust"])
    assert len(started) == 1
    assert "trust = true" in (node / "flower" / "node-config.toml").read_text()
    context = Context(
        run_id=1, node_id=2, node_config=config | {"trust": True}, state=RecordDict(), run_config={}
    )
    (hello,) = decode(ask(context, content)[RECORD][PAYLOAD], FROM_NODE)
    assert hello.agents == (0,)
    assert marker.exists()


def test_a_local_run_takes_the_study_that_was_given_and_not_the_copy_in_its_results(
    tmp_path,
) -> None:
    node = load_node(make(tmp_path)[0])
    study = tmp_path / "study.toml"
    assert local.with_study(node, study) == node
    stranger = dataclasses.replace(node, experiment=node.directory / "study.toml")
    taken = local.with_study(stranger, study)
    assert (taken.experiment, taken.trust) == (study.resolve(), True)


def test_apps_that_lie_in_a_directory_are_not_run(tmp_path) -> None:
    side = load_node(make(tmp_path)[0])
    for name in ("app", "apps"):
        (side.directory / "flower" / name / "fegsam").mkdir(parents=True)
    node_command(side)
    assert [path.name for path in (side.directory / "flower").iterdir()] == ["node-config.toml"]


@pytest.mark.parametrize(
    "line",
    ["[1]", '{"event": 3}', '{"event": "round"}', '{"event": "round", "round": "x"}', "[" * 10**5],
)
def test_a_log_of_a_stranger_is_read_or_refused_in_one_sentence(tmp_path, capsys, line) -> None:
    append_event(tmp_path / "events.jsonl", STARTED)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    status = main(["federate", "status", str(tmp_path)])
    said = capsys.readouterr()
    assert (status == 0 and "running" in said.out) or (status == 2 and "is damaged" in said.err)


def test_a_log_that_is_a_pipe_is_not_waited_for(tmp_path, capsys) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    assert main(["federate", "status", str(tmp_path)]) == 2
    assert "a pipe or a device" in capsys.readouterr().err


def test_a_server_app_that_cannot_go_on_says_why(tmp_path, results) -> None:
    (tmp_path / "fed" / "server" / "terms").write_bytes(b"spoilt")
    with pytest.raises(fg.ProblemError):
        flower_server.main(_Grid(), None)
    job = flower_server.AppStatus.read(results / flower_server.FLOWER_FOLDER)
    assert job is not None
    assert job.state == "failed"
    assert "terms" in job.error


def test_the_page_on_deployment_lists_what_leaves_a_node() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    listed = page.split("<!-- what leaves a node")[1].split("<!-- end -->")[0]
    rows = dict(re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", listed, re.MULTILINE))
    rows.pop("message")
    assert rows == {
        kind.__name__: ", ".join(field.name for field in dataclasses.fields(kind))
        for kind in FROM_NODE
    }


def test_apps_that_a_home_holds_are_removed_whatever_they_are(tmp_path: pathlib.Path) -> None:
    """Flower would run them: a folder, a file, and a link to a folder elsewhere, which itself is
    left alone."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.py").write_text("")
    for make in (pathlib.Path.mkdir, pathlib.Path.touch, lambda path: path.symlink_to(elsewhere)):
        for name in ("app", "apps"):
            make(tmp_path / name)
        forget_apps(tmp_path)
        assert not any(os.path.lexists(tmp_path / name) for name in ("app", "apps"))
    assert (elsewhere / "x.py").exists()
