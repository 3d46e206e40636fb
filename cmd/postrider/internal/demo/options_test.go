package demo

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	good := Options{Orders: 1, Customers: 1, Producers: 1, Relays: 1}
	if err := good.withDefaults().validate(); err != nil {
		t.Fatalf("the smallest demo: %v", err)
	}
	for _, tc := range []struct {
		name  string
		spoil func(*Options)
		says  string
	}{
		{"no orders", func(o *Options) { o.Orders = 0 }, "--orders is 0: use 1 to 1000000"},
		{"too many orders", func(o *Options) { o.Orders = 1_000_001 }, "--orders is 1000001: use 1 to 1000000"},
		{"no customers", func(o *Options) { o.Customers = 0 }, "--customers is 0"},
		{"too many producers", func(o *Options) { o.Producers = 257 }, "--producers is 257: use 1 to 256"},
		{"negative rollback", func(o *Options) { o.Rollback = -1 }, "--rollback is -1: use 0 to 100"},
		{"no relays", func(o *Options) { o.Relays = 0 }, "--relays is 0: use 1 to 16"},
		{"nothing to kill over", func(o *Options) { o.Crash, o.RelayCommand, o.Rollback = true, []string{"x"}, 91 }, "--rollback is 91: with --crash use 0 to 90"},
		{"no command for child processes", func(o *Options) { o.Crash = true }, "--crash"},
		{"another database", func(o *Options) { o.DB = "sqlite:shop.db" }, "postgres://"},
		{"a server without a database", func(o *Options) { o.DB = "mysql://u@h:3306/" }, "--db: the database URL mysql://u@h:3306/ names no database: add one, such as /app"},
		{"a path for a database", func(o *Options) { o.DB = "shop.db" }, "postgres://"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := good
			tc.spoil(&o)
			err := o.withDefaults().validate()
			var u *UsageError
			if !errors.As(err, &u) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want a usage error that says %q", err, tc.says)
			}
			if u != nil && u.ExitCode() != 2 {
				t.Errorf("exit status %d, want 2", u.ExitCode())
			}
		})
	}
}

func TestKeepDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full, file := filepath.Join(dir, "full"), filepath.Join(dir, "full", "something")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ dir, says string }{
		{"", ""},
		{filepath.Join(dir, "missing"), ""},
		{t.TempDir(), ""},
		{full, "something"},
		{file, "not a directory"},
	} {
		err := checkKeep(tc.dir)
		if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("checkKeep(%q): %v, want one that says %q", tc.dir, err, tc.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("the check made the directory: %v", err)
	}
}

func TestPlanFollowsTheSeed(t *testing.T) {
	t.Parallel()
	a := &shop{opts: Options{Seed: 1, Customers: 50, Rollback: 5}}
	b := &shop{opts: Options{Seed: 2, Customers: 50, Rollback: 5}}
	const n = 20_000
	var long, short, rolled, differ int
	for i := range int64(n) {
		p := a.plan(i)
		if p != a.plan(i) {
			t.Fatalf("order %d has two plans", i)
		}
		if p.customer < 1 || p.customer > 50 {
			t.Fatalf("customer %d", p.customer)
		}
		switch {
		case p.open == 500*time.Millisecond:
			long++
		case p.open >= time.Millisecond && p.open <= 30*time.Millisecond:
			short++
		case p.open == 0:
		default:
			t.Fatalf("order %d stays open for %v", i, p.open)
		}
		if p.rollback {
			rolled++
		}
		if p.customer != b.plan(i).customer {
			differ++
		}
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"open for 500 ms", float64(long), n / 200.},
		{"open for 1 to 30 ms", float64(short), n / 3.},
		{"rolled back", float64(rolled), n / 20.},
		{"with another customer under another seed", float64(differ), n * 49 / 50.},
	} {
		if c.got < c.want*0.9 || c.got > c.want*1.1 {
			t.Errorf("%v orders %s, want about %v", c.got, c.what, c.want)
		}
	}
}

func TestStatementText(t *testing.T) {
	t.Parallel()
	const q = `UPDATE {customers} SET orders = ? WHERE id = ?`
	if got, want := (engine{Kind: app.SQLite}).text(q), `UPDATE customers SET orders = ? WHERE id = ?`; got != want {
		t.Errorf("SQLite: %s, want %s", got, want)
	}
	if got, want := (engine{Kind: app.Postgres, Schema: "s"}).text(q), `UPDATE "s".customers SET orders = $1 WHERE id = $2`; got != want {
		t.Errorf("PostgreSQL: %s, want %s", got, want)
	}
	if got, want := (engine{Kind: app.MySQL, Schema: "s"}).text(q), "UPDATE `s`.customers SET orders = ? WHERE id = ?"; got != want {
		t.Errorf("MySQL: %s, want %s", got, want)
	}
}

func TestVerdictText(t *testing.T) {
	t.Parallel()
	v := Judge(run())
	if s := v.text(); strings.Contains(s, "✗") || !strings.Contains(s, "✓ 7 orders placed: 6 committed, 1 rolled back") {
		t.Errorf("a good verdict reads\n%s", s)
	}
	for name, spoil := range map[string]func(*Verdict){
		"lost":             func(v *Verdict) { v.Lost = 1 },
		"delivered":        func(v *Verdict) { v.Delivered-- },
		"phantoms":         func(v *Verdict) { v.Phantoms = 1 },
		"effects":          func(v *Verdict) { v.Effects++ },
		"order_violations": func(v *Verdict) { v.OrderViolations = 1 },
		"dead":             func(v *Verdict) { v.Dead = 1 },
		"pending_left":     func(v *Verdict) { v.PendingLeft = 1 },
		"late_commits":     func(v *Verdict) { v.server, v.Orders = true, 1000 },
	} {
		bad := v
		spoil(&bad)
		if s := bad.text(); strings.Count(s, "✗") != 1 || len(bad.Failures()) == 0 {
			t.Errorf("%s: failures %q, and it reads\n%s", name, bad.Failures(), s)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := group(n); got != want {
			t.Errorf("group(%d) is %s, want %s", n, got, want)
		}
	}
}
