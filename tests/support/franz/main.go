// A member of a classic consumer group by franz-go: prints each record's value, and leaves at SIGTERM.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	session   = 6 * time.Second
	heartbeat = 500 * time.Millisecond
	commits   = 300 * time.Millisecond
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: member BOOTSTRAP TOPIC GROUP CLIENT-ID")
		os.Exit(2)
	}
	if err := read(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(bootstrap, topic, group, clientID string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ClientID(clientID),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(heartbeat),
		kgo.AutoCommitInterval(commits),
	)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out := bufio.NewWriter(os.Stdout)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintf(os.Stderr, "%s-%d: %v\n", topic, partition, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { fmt.Fprintf(out, "%s\n", record.Value) })
		if err := out.Flush(); err != nil {
			return err
		}
	}
	client.Close() // commits, and leaves the group
	return nil
}
