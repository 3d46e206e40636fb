package pgxstore_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
)

// record is a message of 1 KiB; key "" is none.
func record(key string) outbox.Record {
	r := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "test.v1", CreatedAt: time.Now(),
		Message: outbox.Message{Destination: "d", Body: make([]byte, 1024), Event: outbox.Event{Source: "/test"}},
	}
	if key != "" {
		r.Message.Key = []byte(key)
	}
	return r
}

// cpu is what this process has used.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReadAndSettle reports the CPU time of this process, system calls
// included, for each message of 1 KiB that is read and settled, 512 at a time.
func BenchmarkReadAndSettle(b *testing.B) {
	for _, mode := range []string{"cache_statement", "exec"} {
		b.Run(mode, func(b *testing.B) {
			pool := open(b, withParam(b, testenv.Postgres(b), "default_query_exec_mode", mode))
			s := newStore(b, pool, nil)
			ctx := b.Context()
			if err := s.Migrate(ctx); err != nil {
				b.Fatal(err)
			}
			var reads []outbox.LaneRead
			for lane := outbox.Lane(17); lane <= 24; lane++ {
				reads = append(reads, outbox.LaneRead{Lane: lane})
			}
			reader, err := s.LaneSession(ctx, "read")
			if err != nil {
				b.Fatal(err)
			}
			defer reader.Close()
			settler, err := s.LaneSession(ctx, "settle")
			if err != nil {
				b.Fatal(err)
			}
			defer settler.Close()
			dst := make([]outbox.LaneRow, 512)
			before := cpu(b)
			for loaded := 0; loaded < b.N; {
				recs := make([]outbox.Record, min(1000, b.N-loaded))
				for i := range recs {
					recs[i] = record("")
				}
				if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.Enlist(ctx, tx, recs...) }); err != nil {
					b.Fatal(err)
				}
				loaded += len(recs)
			}
			enlist := cpu(b) - before
			runtime.GC()
			var read, settle time.Duration
			for messages := 0; messages < b.N; {
				before := cpu(b)
				n, err := reader.ReadLanes(ctx, reads, dst)
				if err != nil || n == 0 {
					b.Fatalf("read %d rows after %d, %v", n, messages, err)
				}
				between := cpu(b)
				r := outbox.SettleRequest{Owner: outbox.ID{1}, Settlements: make([]outbox.Settlement, n)}
				for i := range dst[:n] {
					row := &dst[i]
					r.Settlements[i] = outbox.Settlement{Lane: row.Lane, Epoch: 1, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleAccepted}
					reads[row.Lane-17].After = row.Pos
				}
				if _, err := settler.SettleLanes(ctx, r); err != nil {
					b.Fatal(err)
				}
				read += between - before
				settle += cpu(b) - between
				messages += n
			}
			per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(b.N) }
			b.ReportMetric(per(read), "read-us/msg")
			b.ReportMetric(per(settle), "settle-us/msg")
			b.ReportMetric(per(enlist), "enlist-us/msg")
			b.ReportMetric(0, "ns/op")
		})
	}
}
