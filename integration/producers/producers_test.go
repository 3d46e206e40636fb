// Package producers_test holds docs/external-producers.md true: its statements
// run as they stand there, its golden vectors are what the stores compute, and
// what they write is delivered in order.
package producers_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/transport"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// page is the documentation.
func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "external-producers.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// statements are those of a section of the page: with a key, and without one.
func statements(t *testing.T, section string) (keyed, unkeyed string) {
	t.Helper()
	_, rest, ok := strings.Cut(page(t), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("the page has no section %s", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	found := regexp.MustCompile("(?s)```sql\n(.*?);\n```").FindAllStringSubmatch(rest, -1)
	if len(found) != 2 {
		t.Fatalf("section %s has %d statements, want 2", section, len(found))
	}
	return found[0][1], found[1][1]
}

// producer writes a message as a program in another language does; a nil key is
// none.
type producer func(ctx context.Context, db *sql.DB, id outbox.ID, key []byte, body string) error

type engine struct {
	name, driver string
	dsn          func(testing.TB) string
	dialect      *sqlstore.Dialect
	producer     func(t *testing.T) producer
}

var engines = []engine{
	{"postgres", "pgx", testenv.Postgres, sqlstore.PostgreSQL, func(t *testing.T) producer {
		return byStatement(t, "PostgreSQL", func(id outbox.ID) any { return id.String() })
	}},
	{"mysql", "mysql", testenv.MySQL, sqlstore.MySQL, func(t *testing.T) producer {
		return byStatement(t, "MySQL and MariaDB", func(id outbox.ID) any { return id[:] })
	}},
	{"oracle", "oracle", testenv.Oracle, sqlstore.Oracle, func(t *testing.T) producer {
		return byStatement(t, "Oracle", func(id outbox.ID) any { return id[:] })
	}},
	{"sqlserver", "sqlserver", testenv.SQLServer, sqlstore.SQLServer, func(t *testing.T) producer {
		return byStatement(t, "SQL Server", func(id outbox.ID) any { return id[:] })
	}},
	{"sqlite", "sqlite", testenv.SQLite, sqlstore.SQLite, func(*testing.T) producer { return byHash }},
}

const (
	route       = "mail"
	destination = "d"
	source      = "/elsewhere"
	wireType    = "t.v1"
)

// byStatement writes with the statements of the page.
func byStatement(t *testing.T, section string, idArg func(outbox.ID) any) producer {
	keyed, unkeyed := statements(t, section)
	return func(ctx context.Context, db *sql.DB, id outbox.ID, key []byte, body string) error {
		text, args := unkeyed, []any{idArg(id), route, wireType, destination, []byte(body), source}
		if key != nil {
			text, args = keyed, []any{idArg(id), route, wireType, destination, key, []byte(body), source}
		}
		return insert(ctx, db, text, args...)
	}
}

func insert(ctx context.Context, db *sql.DB, text string, args ...any) error {
	res, err := db.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows were inserted, %v, want 1", n, err)
	}
	return nil
}

// byHash does what the page's Python does: it computes lane and hash itself.
func byHash(ctx context.Context, db *sql.DB, id outbox.ID, key []byte, body string) error {
	var first, ordered, unordered uint32
	err := db.QueryRowContext(ctx, `SELECT first_lane, ordered_lanes, unordered_lanes FROM postrider_routes WHERE name = ?`, route).Scan(&first, &ordered, &unordered)
	if err != nil {
		return err
	}
	var hash any
	h := sha256.Sum256(id[:])
	lane := first + ordered + binary.BigEndian.Uint32(h[:4])%unordered
	if key != nil {
		h = sha256.Sum256(key)
		lane, hash = first+binary.BigEndian.Uint32(h[:4])%ordered, int64(binary.BigEndian.Uint64(h[:8]))
	}
	return insert(ctx, db, `INSERT INTO postrider_outbox (id, lane, key_hash, transport, message_type, destination, ordering_key, body, ce_source)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, id[:], lane, hash, route, wireType, destination, key, []byte(body), source)
}

// on runs fn on each engine, over tables whose route has first lane 25, as the
// page's second table of golden vectors says.
func on(t *testing.T, fn func(t *testing.T, e engine, db *sql.DB, s *sqlstore.Store)) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(e.driver, e.dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			db.SetMaxOpenConns(10)
			s, err := sqlstore.New(db, e.dialect, &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: route}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			fn(t, e, db, s)
		})
	}
}

// vector is a line of the page's tables.
type vector struct {
	id   outbox.ID
	key  []byte
	hash int64
	lane int64
}

// vectors reads the golden vectors of a route with first lane 25, 16 ordered and
// 8 unordered lanes.
func vectors(t *testing.T) (list []vector) {
	t.Helper()
	text := page(t)
	byKey := regexp.MustCompile("(?m)^\\| `([0-9a-f]+)`( 1024 times)?.* \\| (-?\\d+) \\| 0 \\| \\d+ \\| (\\d+) \\| \\d+ \\|$")
	for _, m := range byKey.FindAllStringSubmatch(text, -1) {
		v := vector{id: outbox.NewID(), hash: number(t, m[3]), lane: 25 + number(t, m[4])}
		var err error
		if v.key, err = hex.DecodeString(m[1]); err != nil {
			t.Fatal(err)
		}
		if m[2] != "" {
			v.key = slices.Repeat(v.key, 1024)
		}
		list = append(list, v)
	}
	byID := regexp.MustCompile("(?m)^\\| `([0-9a-f-]{36})` \\| none \\| (\\d+) \\|$")
	for _, m := range byID.FindAllStringSubmatch(text, -1) {
		v := vector{lane: number(t, m[2])}
		if err := v.id.UnmarshalText([]byte(m[1])); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	if len(list) != 8 {
		t.Fatalf("the page has %d golden vectors, want 6 of keys and 2 of ids", len(list))
	}
	return list
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGoldenVectors: what the statements compute is what the page says, and what
// a relay checks.
func TestGoldenVectors(t *testing.T) {
	on(t, func(t *testing.T, e engine, db *sql.DB, s *sqlstore.Store) {
		put, table := e.producer(t), "postrider_outbox"
		if e.dialect == sqlstore.Oracle {
			table = `"postrider_outbox"`
		}
		for _, v := range vectors(t) {
			if err := put(t.Context(), db, v.id, v.key, "{}"); err != nil {
				t.Fatalf("key %x: %v", v.key, err)
			}
			var lane int64
			var hash sql.NullInt64
			if err := db.QueryRowContext(t.Context(), `SELECT lane, key_hash FROM `+table).Scan(&lane, &hash); err != nil {
				t.Fatal(err)
			}
			if lane != v.lane || hash.Int64 != v.hash || hash.Valid != (v.key != nil) {
				t.Errorf("key %.20x, id %s: lane %d, hash %v, want %d, %d", v.key, v.id, lane, hash, v.lane, v.hash)
			}
			if _, err := db.ExecContext(t.Context(), `DELETE FROM `+table); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// recorder accepts everything.
type recorder struct {
	mu   sync.Mutex
	sent map[string][]string // bodies by key
	n    int
}

func (r *recorder) Send(_ context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		if d.Begin() != nil {
			continue
		}
		rec := d.Record
		r.mu.Lock()
		r.sent[string(rec.Message.Key)] = append(r.sent[string(rec.Message.Key)], string(rec.Message.Body))
		r.n++
		r.mu.Unlock()
		d.Report(transport.Accepted, nil)
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// TestStrayRow: a row in a lane of no route waits, and goes out once it has been given
// its lane, as docs/operations.md says, although the relay is past its position.
func TestStrayRow(t *testing.T) {
	on(t, func(t *testing.T, e engine, db *sql.DB, s *sqlstore.Store) {
		put, table := e.producer(t), "postrider_outbox"
		if e.dialect == sqlstore.Oracle {
			table = `"postrider_outbox"`
		}
		key := []byte("k")
		exec := func(text string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
		if err := put(t.Context(), db, outbox.NewID(), key, "stray"); err != nil {
			t.Fatal(err)
		}
		var lane int64
		if err := db.QueryRowContext(t.Context(), `SELECT lane FROM `+table).Scan(&lane); err != nil {
			t.Fatal(err)
		}
		exec(`UPDATE ` + table + ` SET lane = 4000`)
		rec := run(t, s)
		if err := put(t.Context(), db, outbox.NewID(), key, "later"); err != nil {
			t.Fatal(err)
		}
		rec.await(t, 1)
		exec(fmt.Sprintf(`UPDATE %s SET lane = %d WHERE lane = 4000`, table, lane))
		rec.await(t, 2)
		if got := rec.sent["k"]; !slices.Equal(got, []string{"later", "stray"}) {
			t.Errorf("sent %q, want the later one and then the stray one", got)
		}
	})
}

// run runs a relay until the test ends.
func run(t *testing.T, s *sqlstore.Store) *recorder {
	rec := &recorder{sent: map[string][]string{}}
	r, err := relay.New(s, map[string]transport.Transport{"default": rec, route: rec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("relay: %v", err)
		}
	})
	return rec
}

// await waits until n messages were sent.
func (r *recorder) await(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); r.count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages were delivered in a minute", r.count(), n)
		}
	}
}

// TestDelivery: what others wrote is delivered, each key's messages in the order
// of their inserts, while a relay runs.
func TestDelivery(t *testing.T) {
	on(t, func(t *testing.T, e engine, db *sql.DB, s *sqlstore.Store) {
		put := e.producer(t)
		rec := run(t, s)
		const n = 20
		keys := [][]byte{nil, []byte("a"), {0}, {0xff, 0xfe}, []byte("Z\u00fcrich")}
		var wg sync.WaitGroup
		for _, key := range keys {
			wg.Go(func() {
				for i := range n {
					if err := put(t.Context(), db, outbox.NewID(), key, strconv.Itoa(i)); err != nil {
						t.Errorf("key %x: %v", key, err)
						return
					}
				}
			})
		}
		wg.Wait()
		rec.await(t, n*len(keys))
		for _, key := range keys {
			got := rec.sent[string(key)]
			for i, body := range got {
				if key != nil && body != strconv.Itoa(i) {
					t.Errorf("key %x: message %d is %s", key, i, body)
				}
			}
			if len(got) != n {
				t.Errorf("key %x: %d messages, want %d", key, len(got), n)
			}
		}
	})
}
