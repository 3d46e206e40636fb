package producers_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

func init() {
	engines = append(engines, engine{"python", "sqlite", testenv.SQLite, sqlstore.SQLite, byPython})
}

// commits publishes a message for each line of its input, in a transaction each, and
// answers with a line, which is empty or an error.
const commits = `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for line in sys.stdin:
    m = json.loads(line)
    try:
        db.execute("BEGIN IMMEDIATE")
        publish(db, uuid.UUID(m["id"]), m["route"], m["type"], m["destination"], m["body"].encode(), m["source"],
                key=None if m["key"] is None else bytes.fromhex(m["key"]), headers=[("X-Shop", b"north"), ("x-shop", b"")])
        db.execute("COMMIT")
        print(flush=True)
    except Exception as e:
        if db.in_transaction:
            db.execute("ROLLBACK")
        print(repr(e), flush=True)
`

// byPython is the page's Python itself, in one process for all messages of a test.
func byPython(t *testing.T) producer {
	python := testenv.Program(t, "python3")
	_, rest, ok := strings.Cut(page(t), "\n```python\n")
	code, _, ok2 := strings.Cut(rest, "\n```")
	if !ok || !ok2 {
		t.Fatal("the page has no Python")
	}
	var mu sync.Mutex
	var in *json.Encoder
	var out *bufio.Scanner
	var failed bytes.Buffer
	start := func(ctx context.Context, db *sql.DB) error {
		var file string
		if err := db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&file); err != nil {
			return err
		}
		cmd := exec.Command(python, "-c", code+commits, file)
		cmd.Stderr = &failed
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		t.Cleanup(func() {
			if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
				t.Errorf("python: %v\n%s", err, &failed)
			}
		})
		in, out = json.NewEncoder(stdin), bufio.NewScanner(stdout)
		return nil
	}
	return func(ctx context.Context, db *sql.DB, id outbox.ID, key []byte, body string) error {
		mu.Lock()
		defer mu.Unlock()
		if in == nil {
			if err := start(ctx, db); err != nil {
				return err
			}
		}
		m := map[string]any{"id": id, "route": route, "type": wireType, "destination": destination, "body": body, "source": source, "key": nil}
		if key != nil {
			m["key"] = hex.EncodeToString(key)
		}
		if err := in.Encode(m); err != nil {
			return err
		}
		if !out.Scan() {
			return fmt.Errorf("python has ended: %w", errors.Join(errors.New("no answer"), out.Err()))
		}
		if said := out.Text(); said != "" {
			return errors.New(said)
		}
		return nil
	}
}
