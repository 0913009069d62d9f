// A program under test for `squall run --workload command --role member`: a consumer in a group, by franz-go.
// docs/workloads/command.md has the protocol. Standard output belongs to it: everything else goes to standard error.
//
//	go -C docs/examples/go-member build -o my-member .
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type line map[string]any

type position struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

type record struct {
	position
	Key   string `json:"key"`
	Value []byte `json:"value"` // JSON has bytes as base64
}

type place struct {
	Partition int32 `json:"partition"`
}

var commits int

func say(kind string, said line) {
	said["type"] = kind
	encoded, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(encoded, '\n'))
}

// commit marks what was processed as such, and says so before and after.
func commit(ctx context.Context, client *kgo.Client, topic string) {
	offsets := []position{}
	for partition, at := range client.MarkedOffsets()[topic] {
		offsets = append(offsets, position{partition, at.Offset})
	}
	if len(offsets) == 0 {
		return
	}
	commits++
	said := line{"id": commits}
	say("commit", line{"id": commits, "offsets": offsets})
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		said["error"] = err.Error()
	}
	say("committed", said)
}

func main() {
	in := bufio.NewReader(os.Stdin)
	first, err := in.ReadBytes('\n')
	var init struct {
		Bootstrap string
		Topics    []string
		Config    map[string]string
	}
	if err == nil {
		err = json.Unmarshal(first, &init)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	topic := init.Topics[0]
	ms := func(name string) time.Duration {
		number, _ := strconv.Atoi(init.Config[name])
		return time.Duration(number) * time.Millisecond
	}
	// Callbacks of a rebalance come between two polls only: what was polled is processed by then.
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(init.Bootstrap, ",")...),
		kgo.ClientID(init.Config["client.id"]),
		kgo.ConsumerGroup(init.Config["group.id"]),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(ms("session.timeout.ms")),
		kgo.HeartbeatInterval(ms("heartbeat.interval.ms")),
		kgo.RebalanceTimeout(ms("max.poll.interval.ms")),
		kgo.AutoCommitMarks(), // offsets count once they are marked
		kgo.AutoCommitInterval(time.Hour),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, assigned map[string][]int32) {
			own := []place{}
			for _, partition := range assigned[topic] {
				own = append(own, place{partition})
			}
			member, generation := client.GroupMetadata()
			say("assigned", line{"member": member, "generation": generation, "assigned": own})
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, revoked map[string][]int32) {
			commit(ctx, client, topic)
			say("revoked", line{"partitions": append([]int32{}, revoked[topic]...)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			say("lost", line{"partitions": append([]int32{}, lost[topic]...)})
		}),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	say("ready", line{"name": "franz-go"})
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		in.ReadBytes('\n') // finish, or the end of standard input
		stop()
	}()
	for ctx.Err() == nil {
		poll, done := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := client.PollFetches(poll)
		done()
		records := []record{}
		fetches.EachRecord(func(each *kgo.Record) {
			// The service's work would be here.
			records = append(records, record{position{each.Partition, each.Offset}, string(each.Key), each.Value})
		})
		if len(records) > 0 {
			say("processed", line{"records": records})
			client.MarkCommitRecords(fetches.Records()...)
			commit(context.Background(), client, topic)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance() // gives the partitions up, and leaves the group
}
