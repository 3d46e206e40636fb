//go:build cgo && !sqlite_json

package sqlite335

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// TestWithoutJSON: a build without the JSON functions is told so, by every call, and not
// that tables are missing.
func TestWithoutJSON(t *testing.T) {
	t.Parallel()
	db, s := open(t, filepath.Join(t.TempDir(), "outbox.db"))
	// As the tables may be there from another program.
	script, err := sqlstore.Script(sqlstore.SQLite, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatal(err)
	}
	_, read := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 1, TTL: time.Minute})
	for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Check": s.Check(t.Context()), "AcquireLanes": read} {
		if !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "JSON1") || !strings.Contains(err.Error(), "sqlite_json") {
			t.Errorf("%s: got %v, want outbox.ErrSchema that names JSON1 and the build tag", what, err)
		}
	}
}
