#!/bin/sh
# Starts broker $NODE of compose/cluster.yaml: it dials its peers through Toxiproxy, and has clients dial it so too.
set -eu
case $NODE in
    1) peers=2@toxiproxy:20102,3@toxiproxy:20103 ;;
    2) peers=1@toxiproxy:20201,3@toxiproxy:20203 ;;
    3) peers=1@toxiproxy:20301,2@toxiproxy:20302 ;;
esac
cat >/tmp/broker.properties <<END
node.id=$NODE
process.roles=broker,controller
controller.quorum.voters=1@broker-1:9091,2@broker-2:9091,3@broker-3:9091
listeners=INTERNAL://0.0.0.0:9091,CLIENT://0.0.0.0:9092
advertised.listeners=INTERNAL://broker-$NODE:9091,CLIENT://127.0.0.1:1909$NODE
inter.broker.listener.name=INTERNAL
squall.peers=$peers
squall.cluster.id=U3F1YWxsQ29tcG9zZUNsdQ
log.dirs=/data
default.replication.factor=3
min.insync.replicas=2
END
exec python -P -m squall.broker --config /tmp/broker.properties
