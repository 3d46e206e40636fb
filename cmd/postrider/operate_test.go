package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
)

// box is an outbox in an SQLite file, and what a relay does to it.
type box struct {
	t   *testing.T
	db  string // the flag
	st  *app.Store
	ids map[string]outbox.ID // by the name of the message
}

func newBox(t *testing.T, routes string) *box {
	t.Helper()
	b := &box{t: t, db: "--db=sqlite:" + filepath.Join(t.TempDir(), "o.db"), ids: map[string]outbox.ID{}}
	b.run(0, "migrate", "--routes="+routes)
	var err error
	if b.st, err = app.OpenStore(t.Context(), strings.TrimPrefix(b.db, "--db="), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.st.Close() })
	return b
}

// run calls the program and returns what it printed.
func (b *box) run(code int, args ...string) result {
	b.t.Helper()
	got := call(b.t, nil, append(args, b.db)...)
	if got.code != code {
		b.t.Errorf("%v: status %d, want %d", args, got.code, code)
	}
	if b.t.Failed() {
		b.t.Logf("%v:\n%s%s", args, got.stdout, got.err)
	}
	return got
}

func (b *box) shows(text string, want ...string) {
	b.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			b.t.Errorf("%q is not shown", w)
		}
	}
	if b.t.Failed() {
		b.t.Log(text)
	}
}

const secret = "the payload 4711"

// enlist writes a message of the key, "" for none, and remembers its id.
func (b *box) enlist(name, key string, change func(*outbox.Record)) {
	b.t.Helper()
	rec := outbox.Record{
		ID: outbox.NewID(), Transport: "default", Type: "shop.order.placed.v1", CreatedAt: time.Now(),
		Message: outbox.Message{
			Destination: "shop.orders", ContentType: "text/plain", Body: []byte(secret), Event: outbox.Event{Source: "shop"},
			Headers: []outbox.Header{{Name: "X-Token", Value: []byte("credential 4712")}},
		},
	}
	if key != "" {
		rec.Message.Key = []byte(key)
	}
	if change != nil {
		change(&rec)
	}
	b.ids[name] = rec.ID
	ctx := b.t.Context()
	store, err := b.st.OverSQL()
	if err != nil {
		b.t.Fatal(err)
	}
	tx, err := b.st.DB.BeginTx(ctx, nil)
	if err == nil {
		if err = store.Enlist(ctx, tx, rec); err == nil {
			err = tx.Commit()
		} else {
			tx.Rollback()
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// owner holds every lane, as a relay does.
func (b *box) owner(ttl time.Duration) (outbox.ID, outbox.LaneGrant) {
	b.t.Helper()
	id := outbox.NewID()
	g, err := b.st.AcquireLanes(b.t.Context(), outbox.LaneRequest{Owner: id, Routes: b.routes(), Want: 1 << 20, TTL: ttl})
	if err != nil {
		b.t.Fatal(err)
	}
	return id, g
}

func (b *box) routes() []string {
	routes, err := b.st.Routes(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return routeNames(routes)
}

func (b *box) end(owner outbox.ID) {
	b.t.Helper()
	if _, err := b.st.AcquireLanes(b.t.Context(), outbox.LaneRequest{Owner: owner, Routes: b.routes(), End: true, TTL: time.Minute}); err != nil {
		b.t.Fatal(err)
	}
}

// settle gives every pending message its outcome; reason "" is accepted.
func (b *box) settle(reasons map[string]string) {
	b.t.Helper()
	ctx := b.t.Context()
	id, g := b.owner(time.Minute)
	defer b.end(id)
	req := outbox.SettleRequest{Owner: id}
	for _, l := range g.Leases {
		rows := make([]outbox.LaneRow, 64)
		n, err := b.st.ReadLanes(ctx, []outbox.LaneRead{{Lane: l.Lane}}, rows)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range rows[:n] {
			s := outbox.Settlement{Lane: l.Lane, Epoch: l.Epoch, Pos: r.Pos, ID: r.Record.ID, Outcome: outbox.SettleAccepted, Later: true}
			for name, reason := range reasons {
				if b.ids[name] == r.Record.ID {
					s.Outcome, s.Later, s.Attempt, s.Reason = outbox.SettleDead, false, true, reason
				}
			}
			req.Settlements = append(req.Settlements, s)
		}
	}
	// Dead letters first: they count what is accepted later.
	slices.SortStableFunc(req.Settlements, func(x, y outbox.Settlement) int { return int(y.Outcome) - int(x.Outcome) })
	for _, s := range req.Settlements {
		res, err := b.st.SettleLanes(ctx, outbox.SettleRequest{Owner: id, Settlements: []outbox.Settlement{s}})
		if err != nil || res[0] != outbox.Settled {
			b.t.Fatal(res, err)
		}
	}
}

// parked returns when a key is parked.
func (b *box) parked() {
	for {
		keys, err := b.st.ParkedKeys(b.t.Context(), nil)
		if err != nil {
			b.t.Error(err)
			return
		}
		if len(keys) > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// audit lists who did what, in order.
func (b *box) audit() (lines []string) {
	b.t.Helper()
	rows, err := b.st.DB.QueryContext(b.t.Context(), `SELECT done_by || ' ' || what || ' ' || how_many FROM postrider_audit ORDER BY num`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			b.t.Fatal(err)
		}
		lines = append(lines, s)
	}
	return lines
}

func TestBadOperatorInput(t *testing.T) {
	t.Parallel()
	one, two := newBox(t, "default"), newBox(t, "shop,mail")
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, c := range []struct {
		box  *box
		args []string
		code int
		want []string
	}{
		{one, []string{"park"}, 2, []string{"--key TEXT", "--key-hex"}},
		{one, []string{"park", "--key="}, 2, []string{"--key TEXT"}},
		{one, []string{"park", "--key=a", "--key-hex=61"}, 2, []string{"--key and --key-hex"}},
		{one, []string{"park", "--key-hex=6"}, 2, []string{`"6"`, "hexadecimal"}},
		{one, []string{"park", "--key=" + strings.Repeat("k", 1025)}, 2, []string{"1025 bytes", "1024"}},
		{one, []string{"park", "--key=a", "--why=" + strings.Repeat("w", 5000)}, 2, []string{"--why", "5000", "4096"}},
		{one, []string{"park", "--key=a", "--by=" + strings.Repeat("w", 300)}, 2, []string{"--by", "300", "255"}},
		{one, []string{"park", "--key=a", "--wait=-1s"}, 2, []string{"--wait", "-1s"}},
		{one, []string{"park", "--key=a", "--wait=soon"}, 2, []string{"--wait", "soon"}},
		{one, []string{"park", "--key=a", "--route=mail"}, 2, []string{`"mail"`, "default"}},
		{two, []string{"park", "--key=a"}, 2, []string{"--route", "shop", "mail"}},
		{two, []string{"unpark", "--key=a"}, 2, []string{"--route", "shop", "mail"}},
		{one, []string{"unpark"}, 2, []string{"--key TEXT", "--all"}},
		{one, []string{"unpark", "--all", "--key=a"}, 2, []string{"--all and a key"}},
		{two, []string{"unpark", "--all", "--route=default"}, 2, []string{`"default"`, "shop", "mail"}},
		{one, []string{"dead", "list"}, 2, []string{"list"}},
		{one, []string{"dead", "ls", "--limit=-1"}, 2, []string{"--limit", "-1"}},
		{two, []string{"dead", "ls", "--route=x\x1b[2J"}, 2, []string{`x\x1b[2J`, "shop", "mail"}},
		{one, []string{"dead", "show"}, 2, []string{"id"}},
		{one, []string{"dead", "show", "7"}, 2, []string{`"7"`, "36"}},
		{one, []string{"dead", "show", "{" + id[1:]}, 2, []string{"{1890a5d", "hexadecimal"}},
		{one, []string{"dead", "show", "c0a80a5d-ac96-474b-bcce-b302099a8057"}, 2, []string{"version 4", "UUIDv7"}},
		{one, []string{"dead", "show", id}, 1, []string{id, "no dead letter", "dead ls"}},
		{one, []string{"dead", "retry"}, 2, []string{"ids", "--all"}},
		{one, []string{"dead", "retry", id, "7"}, 2, []string{`"7"`}},
		{one, []string{"dead", "retry", id, "--all"}, 2, []string{"--all and ids"}},
		{one, []string{"dead", "retry", id, "--route=default"}, 2, []string{"--route goes with --all"}},
		{two, []string{"dead", "retry", "--all", "--route=x"}, 2, []string{`"x"`, "shop"}},
		{one, []string{"dead", "discard"}, 2, []string{"ids", "--all"}},
		{one, []string{"dead", "discard", "--all", "--yes"}, 2, []string{"--route", "default"}},
		{two, []string{"dead", "discard", "--all", "--yes", "--route=x"}, 2, []string{`"x"`, "shop"}},
	} {
		got := call(t, nil, append(c.args, c.box.db)...)
		if got.code != c.code || got.stdout != "" {
			t.Errorf("%v: status %d, want %d; stdout %q", c.args, got.code, c.code, got.stdout)
		}
		for _, w := range c.want {
			if !strings.Contains(got.err, w) {
				t.Errorf("%v: the message does not show %q: %s", c.args, w, got.err)
			}
		}
		if strings.ContainsFunc(strings.TrimSuffix(strings.ReplaceAll(got.err, "\nRun ", ""), "\n"), unprintable) {
			t.Errorf("%v: the message has control characters: %q", c.args, got.err)
		}
	}
	for _, b := range []*box{one, two} {
		if lines := b.audit(); len(lines) > 0 {
			t.Errorf("bad input has changed something: %q", lines)
		}
	}
	if got := call(t, nil, "park", "--key=a", "--db=sqlite:"+filepath.Join(t.TempDir(), "no.db")); got.code != 1 || !strings.Contains(got.err, "does not exist") {
		t.Errorf("park in a missing file: status %d, %s", got.code, got.err)
	}
	if got := call(t, nil, "dead", "ls", one.db, "--prefix=other_"); got.code != exitSchema {
		t.Errorf("dead ls without tables: status %d, %s", got.code, got.err)
	}
}

// Every command says what it did, and its repeat that there was nothing to do.
func TestParkAndUnpark(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default,mail:2:1")
	b.shows(b.run(0, "park", "--route=default", "--key=café", "--why=bad\tprice", "--by=ann").stdout, `parked key "café" of route default`, "confirmed")
	b.shows(b.run(0, "park", "--route=default", "--key=café", "--why=other", "--by=bob").stdout, "is parked already, by ann at", `bad\tprice`, "confirmed")
	b.run(0, "park", "--route=mail", "--key-hex=00FF", "--by=ann")
	b.run(0, "park", "--route=mail", "--key=z", "--by=ann")

	var s status
	got := b.run(0, "status", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Parked) != 3 || s.Parked[0].Key == nil || *s.Parked[0].Key != "café" || s.Parked[0].Why != "bad\tprice" || s.Parked[0].By != "ann" || s.Parked[0].Route != "default" {
		t.Errorf("status --json: %s", got.stdout)
	}
	if s.Routes[0].ParkedKeys+s.Routes[1].ParkedKeys != 3 {
		t.Errorf("status counts: %+v", s.Routes)
	}
	b.shows(b.run(0, "status").stdout, "PARKED KEY", `"café"`, "hex:00ff", "ann", `bad\tprice`)

	b.shows(b.run(0, "unpark", "--route=mail", "--key=zz", "--by=bob").stdout, `key "zz" of route mail is not parked, nothing to do`, "hex:00ff", `"z"`)
	b.shows(b.run(0, "unpark", "--route=default", "--key=café", "--by=bob").stdout, `unparked key "café" of route default`, "no relay holds its lane")
	b.shows(b.run(0, "unpark", "--route=default", "--key=café", "--by=bob").stdout, "on its way back already", "no relay holds its lane")
	b.shows(b.run(0, "status").stdout, "on its way back")
	b.shows(b.run(0, "unpark", "--all", "--route=mail", "--by=bob").stdout, "unparked 2 keys of route mail", "no relay holds the lanes of 2 keys")
	b.shows(b.run(0, "unpark", "--all", "--by=bob").stdout, "unparked 0 keys", "3 keys were on the way back")

	want := []string{"ann park 1", "ann park 1", "ann park 1", "bob unpark 1", "bob unpark 1", "bob unpark 1"}
	if lines := b.audit(); !slices.Equal(lines, want) {
		t.Errorf("audit: %q", lines)
	}
	id, g := b.owner(time.Minute)
	if _, _, err := b.st.MoveParked(t.Context(), g.Leases, 100); err != nil {
		t.Fatal(err)
	}
	b.end(id)
	b.shows(b.run(0, "unpark", "--route=default", "--key=café").stdout, "is not parked, nothing to do (no key of the route is)")
	b.shows(b.run(0, "unpark", "--all").stdout, "no key in this outbox is parked, nothing to do")
}

// A command returns when the lane's owner knows, or its lease has ended; until
// then it waits, and says so when it gives up.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default")
	b.owner(time.Minute)
	got := b.run(exitUnconfirmed, "park", "--key=a", "--wait=50ms", "--by=ann")
	b.shows(got.stdout, `parked key "a"`)
	b.shows(got.err, "done, but not confirmed", "50ms", "--wait")
	b.shows(b.run(exitUnconfirmed, "park", "--key=a", "--wait=50ms").stdout, "parked already, by ann")
	b.shows(b.run(0, "park", "--key=a", "--wait=0").stdout, "not confirmed, as --wait=0 says")
	config := write(t, "c.yaml", "ttl: 50ms\n")
	b.shows(b.run(exitUnconfirmed, "unpark", "--key=a", "--config="+config).err, "within 100ms")

	// The owner comes to know while the command waits.
	b = newBox(t, "default")
	id, _ := b.owner(time.Minute)
	done := make(chan result, 1)
	go func() { done <- call(t, nil, "park", "--key=a", b.db) }()
	b.parked()
	select {
	case got := <-done:
		t.Fatalf("the command ended before the owner knew: %+v", got)
	case <-time.After(100 * time.Millisecond):
	}
	g, err := b.st.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: id, Routes: []string{"default"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.st.MoveParked(t.Context(), g.Leases, 100); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.code != 0 || !strings.Contains(got.stdout, "confirmed: no relay starts a send of it") {
		t.Errorf("%+v", got)
	}

	// The owner never does, and its lease ends.
	b = newBox(t, "default")
	b.owner(time.Second)
	b.shows(b.run(0, "park", "--key=a").stdout, "confirmed")

	// An interrupt ends the wait, not the command.
	b = newBox(t, "default")
	b.owner(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		b.parked()
	}()
	var stdout, stderr strings.Builder
	if code := Run(ctx, []string{"park", "--key=a", b.db}, &stdout, &stderr, nil); code != exitUnconfirmed || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("interrupted: status %d, %s%s", code, &stdout, &stderr)
	}
	if lines := b.audit(); len(lines) != 1 {
		t.Errorf("audit after an interrupt: %q", lines)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default,mail:1:1")
	b.shows(b.run(0, "dead", "ls").stdout, "no dead letters")
	b.enlist("first", "one", func(r *outbox.Record) { r.TenantID = "north" })
	b.enlist("second", "one", nil)
	b.enlist("later", "one", nil)
	b.enlist("plain", "", func(r *outbox.Record) {
		r.Transport = "mail"
		r.Message.Headers = []outbox.Header{{Name: "X-Bad", Value: []byte("a\r\x1b[2Jb")}}
	})
	b.settle(map[string]string{"first": "refused:\n\x1b[31mred\u202e " + strings.Repeat("long ", 50), "second": "no", "plain": "header X-Bad"})

	got := b.run(0, "dead", "ls")
	b.shows(got.stdout, "REASON", b.ids["first"].String(), b.ids["second"].String(), b.ids["plain"].String(), "default", "mail", "shop.order.placed.v1",
		`"one"`, `refused:\n\x1b[31mred\u202e long`, "…")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	got = b.run(0, "dead", "ls", "--route=mail", "--json")
	var row deadRow
	if err := json.Unmarshal([]byte(got.stdout), &row); err != nil {
		t.Fatal(err)
	}
	if row.ID != b.ids["plain"] || row.Route != "mail" || row.Key != nil || row.Attempts != 1 || row.Reason != "header X-Bad" || row.Died.IsZero() {
		t.Errorf("dead ls --json: %s", got.stdout)
	}
	got = b.run(0, "dead", "ls", "--limit=2")
	b.shows(got.err, "2 of 3", "--limit")
	if n := strings.Count(got.stdout, "\n"); n != 3 {
		t.Errorf("--limit=2 shows %d lines", n)
	}

	first := b.ids["first"].String()
	got = b.run(0, "dead", "show", first)
	b.shows(got.stdout, first, "1 later message of its key", `red\u202e`, "north", "X-Token (15 bytes)", "not shown: add --body", "shop.orders")
	b.shows(b.run(0, "dead", "show", first, "--body").stdout, secret, "X-Token = credential 4712", "16 bytes")
	b.shows(b.run(0, "dead", "show", b.ids["plain"].String(), "--body").stdout, `X-Bad = a\r\x1b[2Jb`)
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", first}, {"show", first, "--json"}, {"show", b.ids["plain"].String(), "--body"}} {
		got := b.run(0, append([]string{"dead"}, args...)...)
		if args[len(args)-1] != "--body" && (strings.Contains(got.stdout, secret) || strings.Contains(got.stdout, "4712")) {
			t.Errorf("dead %v shows the payload", args)
		}
		if strings.ContainsFunc(strings.ReplaceAll(got.stdout, "\n", ""), unprintable) {
			t.Errorf("dead %v prints control characters: %q", args, got.stdout)
		}
	}
	var view struct {
		Tenant  string
		Reason  string
		Headers []struct {
			Name  string
			Bytes int
			Value []byte `json:"value_base64"`
		}
		Body []byte `json:"body_base64"`
	}
	if err := json.Unmarshal([]byte(b.run(0, "dead", "show", first, "--json", "--body").stdout), &view); err != nil {
		t.Fatal(err)
	}
	if string(view.Body) != secret || view.Tenant != "north" || string(view.Headers[0].Value) != "credential 4712" || !strings.HasPrefix(view.Reason, "refused:\n\x1b[31mred\u202e") {
		t.Errorf("dead show --json --body: %+v", view)
	}

	b.shows(b.run(0, "dead", "retry", first, first, "--by=ann").stdout, "retried 1 dead letter,", "1 later message is out already", "confirmed")
	b.shows(b.run(0, "dead", "retry", first, "--by=ann").stdout, first+" is no dead letter, nothing to do")
	b.shows(b.run(1, "dead", "show", first).err, "no dead letter")
	b.settle(map[string]string{"first": "again"})
	b.shows(b.run(0, "dead", "retry", "--all", "--by=ann").stdout, "retried 3 dead letters")
	b.shows(b.run(0, "dead", "retry", "--all", "--by=ann").stdout, "no dead letters, nothing to do")
	b.settle(map[string]string{"first": "a", "second": "b", "plain": "c"})

	b.shows(b.run(0, "dead", "discard", first, "--by=bob").stdout, "discarded 1 dead letter")
	b.shows(b.run(0, "dead", "discard", first, b.ids["second"].String(), "--by=bob").stdout, "discarded 1 dead letter", "1 id was no dead letter")
	b.shows(b.run(2, "dead", "discard", "--all", "--route=mail").err, "deletes 1 dead letter of route mail", "--yes")
	b.shows(b.run(0, "dead", "ls").stdout, b.ids["plain"].String())
	b.shows(b.run(0, "dead", "discard", "--all", "--route=default", "--yes").stdout, "nothing to do")
	b.shows(b.run(0, "dead", "discard", "--all", "--route=mail", "--yes", "--by=bob").stdout, "discarded 1 dead letter")
	b.shows(b.run(0, "dead", "discard", "--all", "--route=mail", "--yes").stdout, "nothing to do")
	b.shows(b.run(0, "dead", "ls").stdout, "no dead letters")
	want := []string{"ann replay 1", "ann replay 3", "bob discard 1", "bob discard 1", "bob discard 1"}
	if lines := b.audit(); !slices.Equal(lines, want) {
		t.Errorf("audit: %q", lines)
	}
}

// A dead letter that cannot be decoded is shown as far as it can be, hides none
// of the others, and can be got rid of.
func TestUndecodableDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default")
	for _, name := range []string{"a", "b", "c"} {
		b.enlist(name, "key", nil)
	}
	b.settle(map[string]string{"a": "ra", "b": "rb", "c": "rc"})
	id := b.ids["b"]
	if _, err := b.st.DB.ExecContext(t.Context(), `UPDATE postrider_dead SET headers = x'0977', envelope = 7, message_type = '' WHERE id = ?`, id[:]); err != nil {
		t.Fatal(err)
	}
	b.shows(b.run(0, "dead", "ls").stdout, b.ids["a"].String(), id.String(), b.ids["c"].String(), "(cannot be decoded: ", "rb", "?")
	got := b.run(0, "dead", "ls", "--json")
	b.shows(got.stdout, `"undecodable":"stored headers`)
	if n := strings.Count(got.stdout, "\n"); n != 3 {
		t.Errorf("%d lines", n)
	}
	b.shows(b.run(0, "dead", "show", id.String(), "--body").stdout, "cannot be decoded", "stored headers", "envelope(7)", secret)
	b.shows(b.run(0, "dead", "discard", id.String()).stdout, "discarded 1")
}

// Another message under the id is pending: the dead letter stays and is named.
func TestRetryConflict(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default")
	b.enlist("a", "key", nil)
	id := b.ids["a"]
	b.enlist("b", "key", nil)
	b.settle(map[string]string{"a": "no", "b": "no"})
	b.enlist("a", "key", func(r *outbox.Record) { r.ID = id })
	got := b.run(1, "dead", "retry", "--all")
	b.shows(got.stdout, "retried 1 dead letter,")
	b.shows(got.err, id.String(), "pending", "1 was not retried")
	b.shows(b.run(0, "dead", "ls").stdout, id.String())
}

// More dead letters than a page, died in the reverse of their order: all are
// found once, by position.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBox(t, "default:1:1")
	b.enlist("a", "key", nil)
	b.settle(map[string]string{"a": "no"})
	id := b.ids["a"]
	const n = 2*deadPage + 1
	columns := "lane, key_hash, ordering_key, transport, message_type, destination, envelope, created_at, reason, attempts"
	_, err := b.st.DB.ExecContext(t.Context(), fmt.Sprintf(`WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d)
INSERT INTO postrider_dead (pos, died_at, id, %[2]s)
SELECT pos + i, died_at - i / 2, CAST(substr(id, 1, 12) || randomblob(4) AS BLOB), %[2]s FROM c, postrider_dead WHERE id = ?`, n-1, columns), id[:])
	if err != nil {
		t.Fatal(err)
	}
	if got := b.run(0, "dead", "ls", "--limit=0"); strings.Count(got.stdout, "\n") < n {
		t.Errorf("dead ls shows %d of %d", strings.Count(got.stdout, "\n"), n)
	}
	o := &operator{program: &program{ctx: t.Context()}, st: b.st}
	found, _, err := o.find(nil, "")
	if err != nil || len(found) != n {
		t.Fatalf("found %d of %d, %v", len(found), n, err)
	}
	for i := 1; i < n; i++ {
		if found[i].pos <= found[i-1].pos {
			t.Fatalf("position %d follows %d", found[i].pos, found[i-1].pos)
		}
	}
	// One by its id, from the end of the list.
	b.shows(b.run(0, "dead", "show", b.ids["a"].String()).stdout, b.ids["a"].String())
	b.shows(b.run(0, "dead", "retry", "--all").stdout, fmt.Sprintf("retried %d dead letters", n))
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ünï 漢字":        "plain ünï 漢字",
		"a\x1b[2J\r\n\tb":     `a\x1b[2J\r\n\tb`,
		"\u009b31m\u202e\x7f": `\u009b31m\u202e\x7f`,
		"\xff\xfe":            `\xff\xfe`,
		"\ufffd":              "\ufffd",
	} {
		if got := safe(in); got != want {
			t.Errorf("safe(%q) = %q, want %q", in, got, want)
		}
	}
	if got := cut("漢字漢字", 3); got != "漢字…" {
		t.Errorf("cut: %q", got)
	}
	var b strings.Builder
	in := "a\u009b\x1b\u202e\U000e0001<"
	if err := printJSON(&b, in); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || back != in || strings.ContainsFunc(strings.TrimSpace(b.String()), unprintable) {
		t.Errorf("printJSON(%q) = %q, read back as %q, %v", in, b.String(), back, err)
	}
}
