package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// TestRightsThatAreMissing: without DDL rights a current schema is all right and
// a missing one is an error that says what to do; without rights on the tables
// the driver's error comes through.
func TestRightsThatAreMissing(t *testing.T) { onPostgres(t, rightsThatAreMissing) }

func rightsThatAreMissing(t *testing.T, e engine) {
	owner, ownerDB, dsn := e.migrated(t, &sqlstore.Options{Schema: "ours"})
	role := testenv.Name("limited_")
	exec(t, ownerDB, `CREATE ROLE `+role+` LOGIN PASSWORD 'x'`)
	t.Cleanup(func() {
		ctx := context.Background()
		ownerDB.ExecContext(ctx, `DROP OWNED BY `+role)
		if _, err := ownerDB.ExecContext(ctx, `DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	u := must(url.Parse(dsn))
	u.User = url.UserPassword(role, "x")
	db := e.open(t, u.String())

	s := e.store(t, db, &sqlstore.Options{Schema: "ours"})
	wantRefused(t, "Check without any right", s.Check(t.Context()), "permission denied for schema ours", role+` lacks USAGE on SCHEMA ours: GRANT USAGE ON SCHEMA ours TO `+role)
	exec(t, ownerDB, `GRANT USAGE ON SCHEMA ours TO `+role)
	exec(t, ownerDB, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ours TO `+role)
	exec(t, ownerDB, `GRANT USAGE ON ALL SEQUENCES IN SCHEMA ours TO `+role)
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate with nothing to do: %v", err)
	}
	enlist(t, s, db, record("k"), record(""))
	if n, err := owner.PendingCount(t.Context(), record("").CreatedAt); err != nil || n != 2 {
		t.Errorf("pending: got %d, %v", n, err)
	}
	relays(t, s, s, db)
	consumes(t, s, db)
	exec(t, ownerDB, `REVOKE DELETE ON ours.postrider_relays FROM `+role)
	_, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 1, TTL: time.Second})
	wantRefused(t, "without a right on a table", err, "permission denied for table postrider_relays", `GRANT DELETE ON ours.postrider_relays TO `+role)
	err = e.store(t, db, &sqlstore.Options{Schema: "theirs"}).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), `create schema "theirs"`) || !strings.Contains(err.Error(), "grant") {
		t.Errorf("Migrate into a new schema: got %v", err)
	}
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "42501" {
		t.Errorf("Migrate into a new schema: the driver's error is gone from %v", err)
	}
	err = e.store(t, db, &sqlstore.Options{Schema: "ours", Prefix: "second_"}).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "postrider schema") {
		t.Errorf("Migrate without DDL rights: got %v", err)
	}
}

// TestSchemaThatIsHidden: the tables are in a schema of the search path that the role
// may not use, which the server passes over.
func TestSchemaThatIsHidden(t *testing.T) { onPostgres(t, schemaThatIsHidden) }

func schemaThatIsHidden(t *testing.T, e engine) {
	_, ownerDB, dsn := e.migrated(t, &sqlstore.Options{Schema: "Ours"})
	role := testenv.Name("blind_")
	db := e.as(t, ownerDB, withParam(dsn, "search_path", `"$user","Ours", public`), role)
	s := e.store(t, db, nil)
	says := `role ` + role + ` lacks USAGE on SCHEMA "Ours": GRANT USAGE ON SCHEMA "Ours" TO ` + role
	wantRefused(t, "Check", s.Check(t.Context()), says)
	_, err := s.PendingCount(t.Context(), time.Now())
	wantRefused(t, "PendingCount", err, says, "does not exist")
	wantRefused(t, "CheckRelay", s.CheckRelay(t.Context()), says)
	exec(t, ownerDB, `GRANT USAGE ON SCHEMA "Ours" TO `+role)
	exec(t, ownerDB, `GRANT SELECT ON ALL TABLES IN SCHEMA "Ours" TO `+role)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check with the right: %v", err)
	}
	// A schema without our tables hides nothing.
	exec(t, ownerDB, `CREATE SCHEMA theirs`)
	s = e.store(t, e.open(t, withParam(dsn, "search_path", "theirs")), nil)
	wantSchemaError(t, "Check without tables", s.Check(t.Context()), "postrider migrate")
	// Nor does one that hides tables of others, where there are ours to be seen.
	if err := e.store(t, ownerDB, &sqlstore.Options{Schema: "second"}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	role = testenv.Name("sees_")
	db = e.as(t, ownerDB, withParam(dsn, "search_path", `"Ours",second`), role)
	exec(t, ownerDB, `GRANT USAGE ON SCHEMA second TO `+role)
	exec(t, ownerDB, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA second TO `+role)
	exec(t, ownerDB, `GRANT USAGE ON ALL SEQUENCES IN SCHEMA second TO `+role)
	s = e.store(t, db, nil)
	if err := errors.Join(s.Check(t.Context()), s.CheckRelay(t.Context())); err != nil {
		t.Errorf("with tables of ours behind those that are hidden: %v", err)
	}
	relays(t, s, s, db)
}

// relays does what a relay does with s, which is over db, and its operators with op.
func relays(tb testing.TB, s, op stores.Store, db *sql.DB) {
	tb.Helper()
	ctx := tb.Context()
	owner := outbox.NewID()
	var g outbox.LaneGrant
	renew := func() { // leases know of an operator's command after that
		tb.Helper()
		var err error
		if g, err = s.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute}); err != nil || len(g.Leases) != 24 {
			tb.Fatalf("acquire: got %d lanes, %v, want 24", len(g.Leases), err)
		}
	}
	do := func(what string, want int, n int, err error) {
		tb.Helper()
		if err != nil || n != want {
			tb.Errorf("%s: got %d, %v, want %d", what, n, err, want)
		}
	}
	due, key := record(""), []byte("relayed")
	due.Message.DeliverAt = time.Now().Add(-time.Hour)
	enlist(tb, s, db, record(string(key)), record(string(key)), record(string(key)), due)
	ses, err := s.LaneSession(ctx, "settle")
	if err != nil {
		tb.Fatal(err)
	}
	defer ses.Close()
	renew()
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, key)
	rows := make([]outbox.LaneRow, 8)
	n, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane, Keys: [][]byte{key}}}, rows)
	do("read", 3, n, err)
	if tb.Failed() {
		return
	}
	lease := g.Leases[lane-1]
	later(tb, ses, lease, outbox.SettleDead, rows[:1])
	later(tb, ses, lease, outbox.SettleFailed, rows[1:2])
	later(tb, ses, lease, outbox.SettleAccepted, rows[2:3])
	dead := rows[0].Record.ID
	n, _, err = ses.PromoteLanes(ctx, g.Leases, rows)
	do("promote", 1, n, err)
	res, err := op.ReplayDead(ctx, "test", dead)
	do("replay", 1, res.Replayed, err)
	ok, err := op.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: key, By: "test", Why: "test"})
	do("park", 1, map[bool]int{true: 1}[ok], err)
	renew()
	n, _, err = s.MoveParked(ctx, g.Leases, 8)
	do("move aside", 2, n, err)
	ok, err = op.UnparkKey(ctx, "default", key, "test")
	do("unpark", 1, map[bool]int{true: 1}[ok], err)
	renew()
	n, _, err = s.MoveParked(ctx, g.Leases, 8)
	do("move back", 2, n, err)
	n, err = op.DiscardDead(ctx, "test", outbox.NewID())
	do("discard", 0, n, err)
	_, err = op.Inspect(ctx, time.Now())
	do("inspect", 0, 0, err)
}

// grant is one right on one object, to a role of docs/operations.md.
type grant struct{ right, object, role string }

var grants = regexp.MustCompile(`(?s)GRANT ([A-Z, ]+) ON (.*?) TO (\w+);`)

// granted are the grants that the page shows.
func granted(tb testing.TB) (list []grant) {
	tb.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		tb.Fatal(err)
	}
	_, page2, _ := strings.Cut(string(page), "## Rights")
	_, text, _ := strings.Cut(page2, "```sql\n")
	text, _, _ = strings.Cut(text, "```")
	for _, m := range grants.FindAllStringSubmatch(text, -1) {
		objects, sequence := strings.CutPrefix(m[2], "SEQUENCE ")
		for _, o := range strings.Split(objects, ",") {
			for _, right := range strings.Split(m[1], ",") {
				g := grant{strings.TrimSpace(right), strings.TrimSpace(o), m[3]}
				if sequence {
					g.object = "SEQUENCE " + g.object
				}
				list = append(list, g)
			}
		}
	}
	if len(list) != 41 {
		tb.Fatalf("the page has %d grants, want 41: %v", len(list), list)
	}
	return list
}

// TestRightsOfThePage: each role gets what docs/operations.md grants it and no more,
// and does its work. Whatever is taken from a relay, CheckRelay names.
func TestRightsOfThePage(t *testing.T) { onServers(t, rightsOfThePage) }

func rightsOfThePage(t *testing.T, e engine) {
	_, ownerDB, dsn := e.migrated(t, nil)
	list := granted(t)
	for _, g := range list {
		if g.role == "relay" {
			list = append(list, grant{g.right, g.object, "operator"})
		}
	}
	on := func(g grant) string { return g.object }
	if e.dialect == sqlstore.MySQL {
		list = append(list, grant{"SELECT", "postrider_lanes", "shop"})
		_, rest, _ := strings.Cut(dsn, "/")
		database, _, _ := strings.Cut(rest, "?")
		on = func(g grant) string { return "`" + database + "`.`" + g.object + "`" }
	}
	names := map[string]string{}
	as := func(role string) (stores.Store, *sql.DB) {
		t.Helper()
		name := testenv.Name(role + "_")
		names[role] = name
		db := e.as(t, ownerDB, dsn, name)
		for _, g := range list {
			if g.role == role && !(e.dialect == sqlstore.MySQL && strings.HasPrefix(g.object, "SEQUENCE")) {
				exec(t, ownerDB, "GRANT "+g.right+" ON "+on(g)+" TO "+name)
			}
		}
		s := e.store(t, db, nil)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%s: Check: %v", role, err)
		}
		return s, db
	}
	shop, shopDB := as("shop")
	relay, relayDB := as("relay")
	operator, _ := as("operator")
	books, booksDB := as("books")

	due := record("k")
	due.Message.DeliverAt = time.Now().Add(time.Hour)
	enlist(t, shop, shopDB, record("k"), record(""), due)
	err := tryEnlist(t.Context(), shop, shopDB, due)
	if !errors.Is(err, outbox.ErrDuplicateID) {
		t.Errorf("shop: got %v, want outbox.ErrDuplicateID", err)
	}
	relays(t, relay, operator, relayDB)
	consumes(t, books, booksDB)

	if err := relay.CheckRelay(t.Context()); err != nil {
		t.Errorf("relay: CheckRelay: %v", err)
	}
	if err := shop.CheckRelay(t.Context()); !errors.Is(err, outbox.ErrRefused) {
		t.Errorf("shop: CheckRelay: got %v, want outbox.ErrRefused", err)
	}
	for _, g := range list {
		if g.role != "relay" || e.dialect == sqlstore.MySQL && strings.HasPrefix(g.object, "SEQUENCE") {
			continue
		}
		exec(t, ownerDB, "REVOKE "+g.right+" ON "+on(g)+" FROM "+names["relay"])
		err := relay.CheckRelay(t.Context())
		role := names["relay"]
		if e.dialect == sqlstore.MySQL {
			role = "'" + role + "'@'%'"
		}
		grant := "GRANT " + g.right + " ON " + on(g) + " TO " + role
		says := fmt.Sprintf("role %s lacks %s on %s: %s", role, g.right, on(g), grant)
		wantRefused(t, "without "+g.right+" on "+g.object, err, says)
		if err != nil && strings.Count(err.Error(), "GRANT") != 1 {
			t.Errorf("without %s on %s: more than that is named: %v", g.right, g.object, err)
		}
		exec(t, ownerDB, grant)
	}
	// All that is missing, at once.
	var gone []grant
	for _, g := range list {
		if g.role == "relay" && !strings.HasPrefix(g.object, "SEQUENCE") && (g.right == "UPDATE" || g.object == "postrider_dead") {
			exec(t, ownerDB, "REVOKE "+g.right+" ON "+on(g)+" FROM "+names["relay"])
			gone = append(gone, g)
		}
	}
	if err := relay.CheckRelay(t.Context()); err == nil || len(gone) < 8 {
		t.Errorf("relay: CheckRelay without %d rights: %v", len(gone), err)
	} else {
		wantRefused(t, "without many rights", err, "SELECT, INSERT, UPDATE, DELETE on "+on(grant{object: "postrider_dead"}))
		for _, g := range gone {
			if !strings.Contains(err.Error(), "UPDATE ON "+on(g)+" TO ") && !strings.Contains(err.Error(), "DELETE ON "+on(g)+" TO ") {
				t.Errorf("without %s on %s among others: %v", g.right, g.object, err)
			}
		}
	}
	for _, g := range gone {
		exec(t, ownerDB, "GRANT "+g.right+" ON "+on(g)+" TO "+names["relay"])
	}
	if err := relay.CheckRelay(t.Context()); err != nil {
		t.Errorf("relay: CheckRelay with all again: %v", err)
	}
	if e.dialect != sqlstore.PostgreSQL {
		return
	}

	// What a statement meets is named too, and only what it was about.
	for _, tc := range []struct {
		role, right, object string
		call                func() error
	}{
		{"shop", "INSERT", "postrider_deferred", func() error { return tryEnlist(t.Context(), shop, shopDB, due) }},
		{"shop", "INSERT", "postrider_outbox", func() error { return tryEnlist(t.Context(), shop, shopDB, record("k"), record("")) }},
		{"shop", "USAGE", "SEQUENCE postrider_outbox_pos", func() error { return tryEnlist(t.Context(), shop, shopDB, record("k")) }},
		{"operator", "INSERT", "postrider_audit", func() error {
			_, err := operator.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("x")})
			return err
		}},
		{"operator", "UPDATE", "postrider_lanes", func() error {
			_, err := operator.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("x")})
			return err
		}},
	} {
		exec(t, ownerDB, "REVOKE "+tc.right+" ON "+tc.object+" FROM "+names[tc.role])
		wantRefused(t, tc.role+" without "+tc.right+" on "+tc.object, tc.call(), "permission denied",
			fmt.Sprintf("role %s lacks %s on %s: GRANT %[2]s ON %[3]s TO %[1]s: ", names[tc.role], tc.right, tc.object))
		exec(t, ownerDB, "GRANT "+tc.right+" ON "+tc.object+" TO "+names[tc.role])
	}
	// Where the caller's transaction has the only connection nobody can be asked.
	exec(t, ownerDB, "REVOKE INSERT ON postrider_outbox FROM "+names["shop"])
	u := must(url.Parse(dsn))
	u.User = url.UserPassword(names["shop"], "x")
	one := e.openOne(t, u.String())
	begun := time.Now()
	wantRefused(t, "shop with one connection", tryEnlist(t.Context(), e.store(t, one, nil), one, record("k")), "permission denied for table postrider_outbox")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("an error with one connection took %v", took)
	}
	if err := one.PingContext(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// as opens a database with a role of its own, of the password x and no rights.
func (e engine) as(tb testing.TB, owner *sql.DB, dsn, name string) *sql.DB {
	tb.Helper()
	create, drop := "CREATE USER "+name+" IDENTIFIED BY 'x'", []string{"DROP USER " + name}
	if e.dialect == sqlstore.PostgreSQL {
		create, drop = "CREATE ROLE "+name+" LOGIN PASSWORD 'x'", []string{"DROP OWNED BY " + name, "DROP ROLE " + name}
		u := must(url.Parse(dsn))
		u.User = url.UserPassword(name, "x")
		dsn = u.String()
	} else {
		_, place, _ := strings.Cut(dsn, "@")
		dsn = name + ":x@" + place
	}
	exec(tb, owner, create)
	tb.Cleanup(func() {
		for _, text := range drop {
			if _, err := owner.ExecContext(context.Background(), text); err != nil {
				tb.Errorf("%s: %v", text, err)
			}
		}
	})
	return e.open(tb, dsn)
}

// consumes does what a consumer does.
func consumes(tb testing.TB, s stores.Store, db *sql.DB) {
	tb.Helper()
	ctx := tb.Context()
	if store, ok := s.(*sqlstore.Store); ok {
		in, err := inbox.New(store, nil)
		if err != nil {
			tb.Fatal(err)
		}
		for _, want := range []bool{true, false} {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				tb.Fatal(err)
			}
			defer tx.Rollback()
			ran := false
			if _, err := in.Process(ctx, tx, "m", "books", func(context.Context) error { ran = true; return nil }); err != nil || ran != want {
				tb.Errorf("process: ran is %v, %v, want %v", ran, err, want)
			}
			if err := tx.Commit(); err != nil {
				tb.Fatal(err)
			}
		}
	}
	n, err := s.(interface {
		Purge(ctx context.Context, now time.Time, limit int) (int, error)
	}).Purge(ctx, time.Now().AddDate(1, 0, 0), 8)
	if err != nil {
		tb.Errorf("purge: got %d, %v", n, err)
	}
}
