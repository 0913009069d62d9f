"""A node's configuration: what is read, what is refused, and how it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.broker.config import (
    BROKER_SETTINGS,
    BrokerConfig,
    ConfigError,
    Endpoint,
    NodeAddress,
    load_config,
    load_config_text,
    parse_properties,
)
from squall.broker.config.kafka_settings import NODE as NODE_OF_KAFKA
from squall.broker.config.unsupported_settings import UNSUPPORTED, ignored, unsupported_row

NODE = {"node.id": "1"}


def config(**properties: str) -> BrokerConfig:
    return load_config({**NODE, **{name.replace("_", "."): text for name, text in properties.items()}})


def refused(properties: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config({**NODE, **properties})
    return caught.value


def test_least_that_must_be_given_is_the_node_id() -> None:
    assert config().node_id == 1
    with pytest.raises(ConfigError, match=r"node\.id must be given"):
        load_config({})


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("replica.lag.time.max", "replica.lag.time.max.ms"),
        ("min.insync.replica", "min.insync.replicas"),
        ("broker.session.timeout", "broker.session.timeout.ms"),
        ("squall.peer", "squall.peers"),
        ("num.io.thread", "num.io.threads"),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest_name(unknown: str, meant: str) -> None:
    error = refused({unknown: "1"})
    assert str(error) == f"unknown setting {unknown}: did you mean {meant}?"
    assert error.setting == unknown


def test_a_name_that_is_like_none_is_compared_with_none() -> None:
    assert str(refused({"not.a.name": "1"})) == "unknown setting not.a.name"


@pytest.mark.parametrize(
    "name", ["group.share.max.size", "group.streams.max.size", "group.coordinator.threads", "socket.send.buffer.bytes"]
)
def test_setting_that_only_kafka_has_is_ignored_with_a_reason(name: str) -> None:
    taken = load_config({**NODE, name: "77"})
    (line,) = taken.ignored
    assert line.startswith("ignored, because ")
    assert line.endswith(f": {name}")
    assert not load_config({**NODE, name: NODE_OF_KAFKA[name].default or ""}).ignored


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ssl.keystore.location", "/k", "TLS is not spoken"),
        ("authorizer.class.name", "x.Y", "every client may do everything"),
        ("super.users", "User:a", "every client may do everything"),
        ("sasl.enabled.mechanisms", "PLAIN", "SASL is not spoken"),
        ("listener.name.client.ssl.keystore.location", "/k", "no listener has settings of its own"),
        ("max.connections.per.ip.overrides", "h:1", "holds for every address"),
        ("create.topic.policy.class.name", "x.Y", "no policy is asked"),
        ("remote.log.storage.system.enable", "true", "no tiered storage"),
        ("broker.id", "1", "give node.id"),
        ("zookeeper.connect", "h:2181", "controller.quorum.voters"),
    ],
)
def test_setting_that_only_kafka_has_is_refused_where_somebody_relies_on_it(name: str, value: str, why: str) -> None:
    message = str(refused({name: value}))
    assert message.startswith(f"{name} is a setting of Kafka's that Squall lacks: ")
    assert why in message
    if name in NODE_OF_KAFKA:
        assert not load_config({**NODE, name: NODE_OF_KAFKA[name].default or ""}).ignored


def test_every_setting_that_kafka_declares_is_ours_or_has_a_row_that_the_page_has_too() -> None:
    page = (Path(__file__).parents[3] / "docs/broker.md").read_text()
    assert [name for name in NODE_OF_KAFKA if name not in BROKER_SETTINGS and unsupported_row(name) is None] == []
    for row in UNSUPPORTED:
        assert f"| {', '.join(f'`{name}`' for name in row.names)} | {row.why} |" in page


def test_a_name_that_is_near_to_none_is_unknown_without_a_hint() -> None:
    assert str(refused({"qqq.zzz": "1"})) == "unknown setting qqq.zzz"
    assert str(refused({"group.share.max.siz": "1"})).endswith("did you mean group.share.max.size?")


def test_all_that_is_wrong_with_a_file_is_said_at_once_with_its_lines() -> None:
    lines = [
        "# mine",
        "node.id=1",
        "log.segmnt.bytes=5",
        "nonsense",
        "ssl.keystore.location=/k",
        "node.id=2",
        "log.retention.ms=0",
        "max.connections=0",
        "group.share.max.size=3",
    ]
    with pytest.raises(ConfigError) as caught:
        load_config_text("\n".join(lines))
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [f"line {n}" for n in (4, 6, 3, 5, 7, 8)]
    with pytest.raises(ConfigError, match="line 2: num.partitions=x: should be a whole number\nnode.id must be given"):
        load_config_text("\nnum.partitions=x")


def test_a_wrong_value_hides_no_error_of_other_settings_that_exclude_each_other() -> None:
    lines = [
        "node.id=1",
        "log.dirs=/a,/b",
        "log.retention.ms=soon",
        "group.consumer.session.timeout.ms=1000",
        "listeners=SSL://:9093",
    ]
    with pytest.raises(ConfigError) as caught:
        load_config_text("\n".join(lines))
    said = [line.partition(": ")[::2] for line in str(caught.value).splitlines()]
    assert [line for line, _ in said] == ["line 2", "line 3", "line 4", "line 4", "line 5"]
    assert all("group.consumer.session.timeout.ms=1000" in why for line, why in said if line == "line 4")


def test_a_relation_to_a_wrong_value_is_not_asked_about() -> None:
    errors = refused({"group.min.session.timeout.ms": "x", "group.max.session.timeout.ms": "1"}).each
    assert [error.setting for error in errors] == ["group.min.session.timeout.ms"]


def test_a_byte_order_mark_is_named() -> None:
    with pytest.raises(ConfigError, match="^line 1: the file begins with a byte order mark: save it without one$"):
        load_config_text("\ufeffnode.id=1")


@pytest.mark.parametrize("name", ["password.encoder.secret", "inter.broker.protocol.version", "reserved.broker.max.id"])
def test_a_setting_of_kafka_3_is_no_misspelt_one(name: str) -> None:
    assert config(**{name: "1"}).ignored == [f"ignored, because Kafka has it no more since 4.0: {name}"]


def test_what_is_refused_is_not_called_ignored() -> None:
    assert ignored({"ssl.keystore.location": "/k", "group.share.max.size": "3"}, ["ssl.keystore.location"]) == []


SHIPPED = {
    # What the files in Kafka 4.3's config/ say of a node, without the sizes of its sockets and logs.
    "server": {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    },
    "controller": {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "CONTROLLER://:9093",
        "advertised.listeners": "CONTROLLER://localhost:9093",
    },
    "broker": {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
    },
}
OF_ALL = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "num.network.threads": "3",
    "socket.send.buffer.bytes": "102400",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def test_the_files_that_kafka_ships_are_taken_but_for_a_controller_alone_the_brokers_with_its_voters() -> None:
    server = load_config({**SHIPPED["server"], **OF_ALL})
    assert server.node_listeners == {"PLAINTEXT", "CONTROLLER"}
    assert [line.rpartition(": ")[2] for line in server.ignored] == ["share.coordinator.state.topic.min.isr"]
    with pytest.raises(
        ConfigError, match="process.roles=controller should name broker, .* no node is a controller alone"
    ):
        load_config({**SHIPPED["controller"], **OF_ALL})
    with pytest.raises(ConfigError, match="controller.quorum.voters=ID@HOST:PORT must be given"):
        load_config({**SHIPPED["broker"], **OF_ALL})
    voters = {"controller.quorum.voters": "1@localhost:9093"}
    assert load_config({**SHIPPED["broker"], **OF_ALL, **voters}).voters[1].port == 9093


def test_setting_of_kafkas_that_changes_nothing_here_is_taken() -> None:
    assert config(num_io_threads="8").given["num.io.threads"] == "8"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("replica.lag.time.max.ms", "soon", "replica.lag.time.max.ms=soon: should be a whole number"),
        ("min.insync.replicas", "0", "min.insync.replicas=0: should be from 1 to 2147483647"),
        ("num.partitions", "99999999999", "num.partitions=99999999999: should be from 1 to 2147483647"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "log.cleaner.min.cleanable.ratio=1.5: should be from 0.0 to 1.0"),
        ("log.cleaner.min.cleanable.ratio", "nan", "log.cleaner.min.cleanable.ratio=nan: should be a number"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: should be true or false"),
        ("log.cleanup.policy", "delete,keep", "log.cleanup.policy=delete,keep: should be one of compact, delete"),
        (
            "log.message.timestamp.type",
            "Now",
            "log.message.timestamp.type=Now: should be one of CreateTime, LogAppendTime",
        ),
        (
            "listeners",
            "CLIENT:9092",
            "listeners=CLIENT:9092: 'CLIENT:9092' should look like CLIENT://127.0.0.1:9092",
        ),
        (
            "squall.peers",
            "2@localhost",
            "squall.peers=2@localhost: 'localhost' should end in a host and a port, such as 127.0.0.1:9092",
        ),
    ],
)
def test_impossible_value_is_refused_with_setting_value_and_range(name: str, text: str, says: str) -> None:
    error = refused({name: text})
    assert str(error) == says
    assert error.setting == name


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        (
            {"broker.heartbeat.interval.ms": "9000"},
            ["broker.heartbeat.interval.ms=9000", "broker.session.timeout.ms=9000"],
        ),
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.socket.timeout.ms": "50000"},
            ["replica.fetch.wait.max.ms=40000", "replica.lag.time.max.ms=30000"],
        ),
        (
            {"replica.fetch.wait.max.ms": "500", "replica.socket.timeout.ms": "400"},
            ["replica.fetch.wait.max.ms=500", "replica.socket.timeout.ms=400"],
        ),
        ({"group.min.session.timeout.ms": "9", "group.max.session.timeout.ms": "8"}, ["timeout.ms=9", "timeout.ms=8"]),
        ({"group.consumer.session.timeout.ms": "44999"}, ["min.session.timeout.ms=45000", "session.timeout.ms=44999"]),
        ({"message.max.bytes": "104857601"}, ["message.max.bytes=104857601", "socket.request.max.bytes=104857600"]),
        (
            {"socket.request.max.bytes": "300000000"},
            ["socket.request.max.bytes=300000000", "queued.max.request.bytes=268435456"],
        ),
        ({"log.retention.ms": "0"}, ["log.retention.ms"]),
        ({"max.connections": "0"}, ["max.connections=0", "lock out every client"]),
        ({"max.connections.per.ip": "0"}, ["max.connections.per.ip=0", "lock out every client"]),
        ({"process.roles": ""}, ["process.roles"]),
        ({"log.dirs": "/a,/b"}, ["log.dirs=/a,/b"]),
        ({"controller.quorum.voters": "2@h:1,3@h:2"}, ["node.id=1", "controller.quorum.voters=[2, 3]"]),
        ({"controller.quorum.voters": "1@h:1,1@h:2"}, ["names a node twice", "[1, 1]"]),
        (
            {"process.roles": "broker", "controller.quorum.voters": "1@h:1"},
            ["node.id=1", "process.roles lacks controller"],
        ),
        ({"process.roles": "broker"}, ["controller.quorum.voters=ID@HOST:PORT must be given"]),
        ({"squall.peers": "2@h:1,2@h:2"}, ["squall.peers names a node twice"]),
        ({"listeners": ""}, ["listeners should name"]),
        ({"listeners": "A://h:1,A://h:2"}, ["listeners names a listener twice", "'A'"]),
        ({"listeners": "A://h:1,B://h:1"}, ["share an address"]),
        ({"advertised.listeners": "CLIENT://h:1"}, ["CLIENT", "['PLAINTEXT']"]),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, ["PLAINTEXT://0.0.0.0:1", "nobody can connect"]),
        ({"inter.broker.listener.name": "INTERNAL"}, ["inter.broker.listener.name=INTERNAL", "['PLAINTEXT']"]),
        ({"controller.listener.names": "CONTROLLER"}, ["controller.listener.names=CONTROLLER", "PLAINTEXT"]),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, ["PLAINTEXT:SSL", "only PLAINTEXT"]),
        ({"listeners": "SASL_SSL://h:1"}, ["listeners: SASL_SSL:SASL_SSL", "only PLAINTEXT"]),
        ({"controller.quorum.bootstrap.servers": "h:9093"}, ["controller.quorum.bootstrap.servers=h:9093", "ID@HOST"]),
    ],
)
def test_settings_that_exclude_each_other_are_named_with_their_values(
    properties: dict[str, str], named: list[str]
) -> None:
    message = str(refused(properties))
    assert [part for part in named if part not in message] == [], message


def test_listener_without_a_host_is_bound_to_loopback_only() -> None:
    assert config(listeners="CLIENT://:9092").bind_listeners == (Endpoint("CLIENT", "127.0.0.1", 9092),)


def test_listeners_are_advertised_where_they_listen_unless_told_otherwise() -> None:
    node = config(
        listeners="INTERNAL://127.0.0.1:9001,CLIENT://127.0.0.1:9002", advertised_listeners="CLIENT://127.0.0.1:700"
    )
    assert node.advertised == (Endpoint("INTERNAL", "127.0.0.1", 9001), Endpoint("CLIENT", "127.0.0.1", 700))


def test_nodes_speak_to_each_other_on_the_listener_named_for_it_or_on_internal_or_on_the_first() -> None:
    two = "CLIENT://127.0.0.1:1,INTERNAL://127.0.0.1:2"
    assert config(listeners=two).inter_broker_listener == "INTERNAL"
    assert config(listeners=two, inter_broker_listener_name="CLIENT").inter_broker_listener == "CLIENT"
    assert config(listeners="A://127.0.0.1:1,B://127.0.0.1:2").inter_broker_listener == "A"


def test_address_with_colons_is_bracketed() -> None:
    node = config(listeners="CLIENT://[::1]:9092", squall_peers="2@[::1]:4001")
    assert node.listeners == (Endpoint("CLIENT", "::1", 9092),)
    assert str(node.listeners[0]) == "CLIENT://[::1]:9092"
    assert node.peers[2] == NodeAddress(2, "::1", 4001)
    assert str(node.peers[2]) == "2@[::1]:4001"


def test_peers_and_voters_are_found_by_id() -> None:
    node = config(controller_quorum_voters="1@a:1,2@b:2", squall_peers="2@127.0.0.1:4001,3@127.0.0.1:4002")
    assert node.voters[2].host == "b"
    assert [peer.port for peer in node.peers.values()] == [4001, 4002]


def test_finer_unit_of_time_wins() -> None:
    assert config().retention_ms == 168 * 3_600_000
    assert config(log_retention_hours="1").retention_ms == 3_600_000
    assert config(log_retention_hours="1", log_retention_minutes="2").retention_ms == 120_000
    assert config(log_retention_minutes="2", log_retention_ms="5").retention_ms == 5
    assert config(log_roll_hours="2").roll_ms == 7_200_000
    assert config(log_roll_hours="2", log_roll_ms="9").roll_ms == 9
    assert config(log_roll_jitter_hours="1").roll_jitter_ms == 3_600_000
    assert config(log_flush_interval_ms="7").flush_ms == 7


@pytest.mark.parametrize("name", ["log_retention_ms", "log_retention_minutes", "log_retention_hours"])
def test_retention_of_minus_one_in_any_unit_is_for_ever(name: str) -> None:
    assert config(**{name: "-1"}).retention_ms == -1


def test_roles_say_what_a_node_does() -> None:
    assert config().is_controller
    assert not config(process_roles="broker", controller_quorum_voters="2@h:1").is_controller


def test_directory_of_the_logs_is_log_dirs_or_else_log_dir() -> None:
    assert config(log_dir="/a").data_dir == "/a"
    assert config(log_dir="/a", log_dirs="/b").data_dir == "/b"


def test_altered_configuration_keeps_what_was_given_and_is_validated_as_a_whole() -> None:
    node = config(num_partitions="3")
    altered = load_config({**node.given, "min.insync.replicas": "2"})
    assert (altered.num_partitions, altered.min_insync_replicas) == (3, 2)
    assert node.min_insync_replicas == 1
    with pytest.raises(ConfigError):
        load_config({**node.given, "broker.session.timeout.ms": "1000"})


def test_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        config().node_id = 2  # type: ignore[misc]


def test_properties_text_is_read_as_java_does() -> None:
    text = """
# a comment
! another
node.id=1
 log.dirs = /data \r
listeners=A://h:1,\\
    B://h:2
broker.rack: r1
squall.trace.path=a=b
"""
    assert parse_properties(text) == {
        "node.id": "1",
        "log.dirs": "/data",
        "listeners": "A://h:1,B://h:2",
        "broker.rack": "r1",
        "squall.trace.path": "a=b",
    }


def test_property_given_twice_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: node\.id is given twice"):
        parse_properties("node.id=1\nnode.id=2\n")


def test_line_that_is_no_property_is_refused_with_its_number() -> None:
    with pytest.raises(ConfigError, match="line 3: 'node' should look like name=value"):
        parse_properties("# one\nnode.id=1\nnode\n")
