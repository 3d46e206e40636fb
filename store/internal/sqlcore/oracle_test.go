package sqlcore

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
)

// TestOracleErrors: the drivers' types are not known here, only the texts.
func TestOracleErrors(t *testing.T) {
	t.Parallel()
	s := &Store{d: Oracle, q: Oracle.expand(Options{Prefix: "p_"}.names()), Config: Config{Options: Options{Prefix: "p_"}}}
	for text, want := range map[string]error{
		"ORA-00942: table or view does not exist\n error occur at position: 14":                                     outbox.ErrSchema,
		"ORA-06550: line 4, column 19:\nPL/SQL: ORA-00942: table or view does not exist":                            outbox.ErrSchema,
		"ORA-02289: sequence does not exist":                                                                        outbox.ErrSchema,
		"ORA-01031: insufficient privileges":                                                                        outbox.ErrRefused,
		"ORA-20001: not on Sundays\nORA-06512: at \"SHOP.T\", line 2\nORA-04088: error during execution of trigger": outbox.ErrRefused,
		"ORA-16000: database or pluggable database open for read-only access":                                       outbox.ErrRefused,
		"ORA-00001: unique constraint (SHOP.p_outbox_id) violated":                                                  outbox.ErrRefused,
		"ORA-02290: check constraint (SHOP.SYS_C0042) violated":                                                     outbox.ErrRefused,
		"ORA-12899: value too large for column \"SHOP\".\"p_outbox\".\"TENANT\" (actual: 256, maximum: 255)":        outbox.ErrRefused,
		"ORA-00060: deadlock detected while waiting for resource":                                                   nil,
		"ORA-21000: error number argument to raise_application_error of 1 is out of range":                          nil,
		"ORA-03113: end-of-file on communication channel":                                                           nil,
		"driver: bad connection": nil,
	} {
		err := errors.New(text)
		got := s.explain(t.Context(), relays, err)
		if !errors.Is(got, err) || want != nil && !errors.Is(got, want) || want == nil && got != err {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"ORA-08177: can't serialize access for this transaction": true, "ORA-00060: deadlock detected": true, "ORA-00054: resource busy": true,
		"ORA-30006: resource busy; acquire with WAIT timeout expired": true, "ORA-01555: snapshot too old": true,
		"ORA-01013: user requested cancel of current operation": true,
		"ORA-06550: line 1:\nORA-00054: resource busy":          true, "ORA-00942: table or view does not exist": false, "ORA-": false, "": false,
	} {
		if got := Oracle.busy(errors.New(text)); got != want {
			t.Errorf("%q: busy is %v", text, got)
		}
	}
	if Oracle.busy(nil) || !Oracle.exists(errors.New("ORA-00955: name is already used by an existing object")) {
		t.Error("no error is busy, or a table that exists is not seen")
	}
}

func TestOracleCharacterSet(t *testing.T) {
	t.Parallel()
	if err := Oracle.fits("19.0.0.0.0 Oracle Database 19c Enterprise Edition, AL32UTF8"); err != nil {
		t.Error(err)
	}
	for _, set := range []string{"WE8MSWIN1252", "UTF8", "US7ASCII"} {
		if err := Oracle.fits("19.0.0.0.0 Oracle Database 19c, " + set); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), set) {
			t.Errorf("%s: got %v", set, err)
		}
	}
}

// driverConn begins transactions itself.
type driverConn struct {
	ran  []string
	fail map[string]error
	ctx  []bool // whether each end's context was alive
}

func (c *driverConn) run(text string) error {
	c.ran = append(c.ran, text)
	return c.fail[text]
}

func (c *driverConn) Exec(_ context.Context, text string, _ ...any) (int64, error) {
	return 1, c.run(text)
}
func (c *driverConn) Query(_ context.Context, text string, _ []any, _ func(Row) error) error {
	return c.run(text)
}
func (c *driverConn) Release() error { return nil }
func (c *driverConn) Discard()       { _ = c.run("discard") }
func (c *driverConn) Begin(context.Context) (func(context.Context, bool) error, error) {
	if err := c.run("begin"); err != nil {
		return nil, err
	}
	return func(ctx context.Context, commit bool) error {
		c.ctx = append(c.ctx, ctx.Err() == nil)
		if commit {
			return c.run("commit")
		}
		return c.run("rollback")
	}, nil
}

// TestDriverBegins: where the driver has to be told, no text begins or ends a
// transaction, and what could not be ended is thrown away.
func TestDriverBegins(t *testing.T) {
	t.Parallel()
	s := &Store{d: Oracle}
	bad := errors.New("bad")
	work := func(err error) func(Querier) error {
		return func(q Querier) error { _, _ = q.Exec(context.Background(), "work"); return err }
	}
	for name, tc := range map[string]struct {
		begin string
		fail  map[string]error
		work  error
		ran   []string
	}{
		"all well":          {"set", nil, nil, []string{"begin", "set", "work", "commit"}},
		"on a pinned one":   {"", nil, nil, []string{"begin", "work", "commit"}},
		"the work fails":    {"", nil, bad, []string{"begin", "work", "rollback"}},
		"no rollback":       {"", map[string]error{"rollback": bad}, bad, []string{"begin", "work", "rollback", "discard"}},
		"no begin":          {"", map[string]error{"begin": bad}, nil, []string{"begin"}},
		"no setting":        {"set", map[string]error{"set": bad}, nil, []string{"begin", "set", "rollback"}},
		"neither":           {"set", map[string]error{"set": bad, "rollback": bad}, nil, []string{"begin", "set", "rollback", "discard"}},
		"the commit fails":  {"", map[string]error{"commit": bad}, nil, []string{"begin", "work", "commit", "rollback"}},
		"nothing ends well": {"", map[string]error{"commit": bad, "rollback": bad}, nil, []string{"begin", "work", "commit", "rollback", "discard"}},
	} {
		c := &driverConn{fail: tc.fail}
		err := s.transaction(t.Context(), c, tc.begin, work(tc.work))
		if !slices.Equal(c.ran, tc.ran) || (err != nil) != (tc.fail != nil || tc.work != nil) {
			t.Errorf("%s: ran %q, %v, want %q", name, c.ran, err, tc.ran)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &driverConn{}
	err := s.transaction(ctx, c, "", func(Querier) error { cancel(); return ctx.Err() })
	if err == nil || !slices.Equal(c.ctx, []bool{true}) {
		t.Errorf("a transaction whose context ended: %v, rolled back under %v", err, c.ctx)
	}
}

// TestOracleClock holds the arithmetic of {now} against that of package time.
func TestOracleClock(t *testing.T) {
	t.Parallel()
	factors := map[string]int64{}
	for _, m := range regexp.MustCompile(`EXTRACT\((\w+) FROM [^+]*?\) \* (\d+)`).FindAllStringSubmatch(nowOracle, -1) {
		factors[m[1]], _ = strconv.ParseInt(m[2], 10, 64)
	}
	if len(factors) != 4 {
		t.Fatalf("factors %v", factors)
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.Date(2026, 12, 1, 23, 59, 59, 999_999_999, time.UTC), time.Date(2099, 2, 28, 1, 2, 0, 1000, time.UTC)} {
		at = at.UTC()
		// EXTRACT(SECOND) has the fraction, and FLOOR cuts what is below a microsecond.
		got := int64(at.Sub(time.Unix(0, 0))/(24*time.Hour))*factors["DAY"] + int64(at.Hour())*factors["HOUR"] + int64(at.Minute())*factors["MINUTE"] +
			(int64(at.Second())*1_000_000_000+int64(at.Nanosecond()))*factors["SECOND"]/1_000_000_000
		if got != at.UnixMicro() {
			t.Errorf("%v: got %d, want %d", at, got, at.UnixMicro())
		}
	}
}

// failing is a transaction in which statements of some beginning fail.
type failing struct {
	ran  []string
	fail string
	err  error
}

func (f *failing) Exec(_ context.Context, text string, _ ...any) (int64, error) {
	text, _, _ = strings.Cut(text, " (")
	f.ran = append(f.ran, text)
	if f.fail != "" && strings.HasPrefix(text, f.fail) {
		return 0, f.err
	}
	return 1, nil
}

func (f *failing) Query(context.Context, string, []any, func(Row) error) error { return nil }

// TestOracleInsertsAllOrNothing: a statement that is run with arrays leaves the rows
// beside the one that fails.
func TestOracleInsertsAllOrNothing(t *testing.T) {
	t.Parallel()
	s := &Store{d: Oracle, q: Oracle.expand(Options{Prefix: "p_"}.names()), Config: Config{Rows: Oracle.rows}}
	s.script = s.q.scripts(Oracle.begin)
	insertOf := func(n int) *insertion {
		c := &insertion{group: &group{route: route{lanes: "[1,2]"}}}
		for i := range n {
			c.entries = append(c.entries, &entry{&outbox.Record{ID: outbox.ID{15: byte(i + 1)}, Transport: "t", Type: "t", CreatedAt: time.Unix(1, 0)}, 1})
		}
		return c
	}
	const save, back, insert = "SAVEPOINT postrider_enlist", "ROLLBACK TO SAVEPOINT postrider_enlist", `INSERT INTO "p_outbox"`
	duplicate, other := errors.New("ORA-00001: unique constraint violated"), errors.New("ORA-01653: unable to extend table")
	for name, tc := range map[string]struct {
		rows int
		fail string
		err  error
		n    int64
		want error
		ran  []string
	}{
		"one row":        {1, "", nil, 1, nil, []string{insert}},
		"one duplicate":  {1, insert, duplicate, 0, nil, []string{insert}},
		"many":           {2, "", nil, 1, nil, []string{save, insert}},
		"a duplicate":    {2, insert, duplicate, 0, nil, []string{save, insert, back}},
		"something else": {2, insert, other, 0, other, []string{save, insert, back}},
		"no savepoint":   {2, save, other, 0, other, []string{save}},
	} {
		tx := &failing{fail: tc.fail, err: tc.err}
		n, err := s.insertPlain(t.Context(), s.dress(tx), insertOf(tc.rows))
		if n != tc.n || !errors.Is(err, tc.want) || !slices.Equal(tx.ran, tc.ran) {
			t.Errorf("%s: got %d, %v, ran %q, want %d, %v, %q", name, n, err, tx.ran, tc.n, tc.want, tc.ran)
		}
	}
}

// grudging is a connection, and the pool of it, whose reads find a zero and whose
// writes fail.
type grudging struct {
	driverConn
	err error
}

func (c *grudging) Conn(context.Context) (Conn, error)                  { return c, nil }
func (c *grudging) Limit() int                                          { return 0 }
func (c *grudging) Transient(context.Context) (bool, error)             { return false, nil }
func (c *grudging) Exec(context.Context, string, ...any) (int64, error) { return 0, c.err }
func (c *grudging) Query(_ context.Context, _ string, _ []any, scan func(Row) error) error {
	return scan(zero{})
}

type zero struct{}

func (zero) Scan(dst ...any) error {
	switch d := dst[0].(type) {
	case *int:
		*d = 0
	case *textColumn:
		*d, *dst[1].(*textColumn) = `"R"`, `"S"`
	}
	return nil
}

// TestOracleCheckRelay: a table on which a role has no right at all is missing, and
// no relay starts. All rights that are missing are named.
func TestOracleCheckRelay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"ORA-00942: table or view does not exist": outbox.ErrSchema,
		"ORA-02289: sequence does not exist":      outbox.ErrSchema,
		"ORA-01031: insufficient privileges":      outbox.ErrRefused,
	} {
		d := *Oracle
		d.begin = ""
		c := &grudging{err: errors.New(text)}
		s := &Store{d: &d, q: Oracle.expand(Options{Prefix: "p_"}.names()), Config: Config{Pool: c, Options: Options{Prefix: "p_"}}}
		s.handle = handle{s: s}
		s.names = s.Options.names()
		err := s.CheckRelay(t.Context())
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", text, err, want)
		}
		if want == outbox.ErrRefused && (!strings.Contains(err.Error(), `GRANT INSERT, UPDATE, DELETE ON "S"."p_outbox" TO "R"`) ||
			!strings.Contains(err.Error(), `GRANT UPDATE ON "S"."p_lane_marks" TO "R"`)) {
			t.Errorf("not all rights are named: %v", err)
		}
	}
}
