package relay_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

// BenchmarkOrdered compares the relay with a dispatcher that takes one row at a
// time per key, by a claim that looks for an earlier row of the key, at 1 ms
// send latency. Reported as messages per second.
func BenchmarkOrdered(b *testing.B) {
	for _, keys := range []int{10, 1000} {
		messages := max(5000, 20*keys)
		b.Run(fmt.Sprintf("keys=%d/relay", keys), func(b *testing.B) {
			db, store := benchStore(b)
			rows := benchFill(b, db, store, keys, messages)
			rec := transporttest.NewRecorder(&transporttest.Options{Latency: time.Millisecond})
			r, err := relay.New(store, map[string]transport.Transport{"default": rec}, nil)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			b.ResetTimer()
			began := time.Now()
			go func() { done <- r.Run(ctx) }()
			if err := rec.WaitAccepted(ctx, rows); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(rows)/time.Since(began).Seconds(), "msgs/s")
			b.StopTimer()
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
		b.Run(fmt.Sprintf("keys=%d/one-row-per-claim", keys), func(b *testing.B) {
			db, store := benchStore(b)
			rows := benchFill(b, db, store, keys, messages)
			const claim = `UPDATE postrider_outbox SET claim_token = '\x01', claim_until = 1 WHERE (lane, pos) = (
				SELECT lane, pos FROM postrider_outbox o WHERE claim_token IS NULL
				   AND NOT EXISTS (SELECT 1 FROM postrider_outbox e WHERE e.lane = o.lane AND e.key_hash = o.key_hash AND e.pos < o.pos)
				 ORDER BY pos LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING lane, pos`
			b.ResetTimer()
			began := time.Now()
			for end := began.Add(5 * time.Second); rows > 0 && time.Now().Before(end); rows-- {
				var lane, pos int64
				if err := db.QueryRow(claim).Scan(&lane, &pos); err != nil {
					b.Fatal(err)
				}
				time.Sleep(time.Millisecond) // the send
				if _, err := db.Exec(`DELETE FROM postrider_outbox WHERE lane = $1 AND pos = $2`, lane, pos); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(messages-rows)/time.Since(began).Seconds(), "msgs/s")
		})
	}
}

func benchStore(b *testing.B) (*sql.DB, *sqlstore.Store) {
	b.Helper()
	db, err := sql.Open("pgx", testenv.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := store.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	return db, store
}

func benchFill(b *testing.B, db *sql.DB, store *sqlstore.Store, keys, rows int) int {
	b.Helper()
	for at := 0; at < rows; at += 1000 {
		tx, err := db.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		var recs []outbox.Record
		for i := at; i < min(at+1000, rows); i++ {
			recs = append(recs, outbox.Record{
				ID: outbox.NewID(), Transport: "default", Type: "bench.v1", CreatedAt: time.Now(),
				Message: outbox.Message{Destination: "d", Key: fmt.Append(nil, "k", i%keys), Body: make([]byte, 1024), Event: outbox.Event{Source: "/bench"}},
			})
		}
		if err := store.Enlist(b.Context(), tx, recs...); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return rows
}
