package sqlcore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// TestLimits: a text for every size that is asked for, never one for fewer rows
// than there are unless it is the largest.
func TestLimits(t *testing.T) {
	t.Parallel()
	texts := SQLite.expand(Options{Prefix: "p_"}.names())
	for n := 1; n <= 2000; n++ {
		text, limit := texts.ReadLane.at(n)
		if limit < n && limit != 1024 || !strings.Contains(text, "LIMIT") {
			t.Fatalf("%d rows: limit %d", n, limit)
		}
	}
}

func TestTableParameters(t *testing.T) {
	t.Parallel()
	write := func(w RowWriter) []any {
		for _, text := range []string{`a"b\c{},NULL`, ""} {
			w.Int(-7)
			w.Text(text)
			w.Bytes([]byte{0, 0xff})
			w.Null()
			w.ID(outbox.ID{1, 2})
		}
		return w.Args()
	}
	const id = "01020000000000000000000000000000"
	// slots are the columns of a row for SQLite, bytes behind them.
	slots := func(behind string, columns ...string) string {
		var b strings.Builder
		for _, c := range columns {
			fmt.Fprintf(&b, "%s%s", c, make([]byte, 20-len(c)))
		}
		return b.String() + behind
	}
	const none = "\x00\x00\x00\x00\x00\x00\x00"
	packed := slots("a\"b\\c{},NULL\x00\xff", "-7", "100"+none+"12", "112"+none+"2", "", "\x01\x02") +
		slots("\x00\xff", "-7", "100"+none+"0", "100"+none+"2", "", "\x01\x02")
	for _, tc := range []struct {
		d           *Dialect
		want, empty []any
	}{
		{PostgreSQL, []any{"{-7,-7}", `{"a\"b\\c{},NULL",""}`, `{"\\x00ff","\\x00ff"}`, "{NULL,NULL}", "{" + id + "," + id + "}"}, []any{"{}", "{}", "{}", "{}", "{}"}},
		{SQLServer, []any{fmt.Sprintf("%-256s", `[[1,-7,"a\"b\\c{},NULL","00ff",null,"`+id+`"],[2,-7,"","00ff",null,"`+id+`"]]`)}, []any{fmt.Sprintf("%-128s", "[]")}},
		{SQLite, []any{"[1,115]", packed}, []any{"[]", ""}},
	} {
		for what, args := range map[string][2][]any{"rows": {write(tc.d.rows(5)), tc.want}, "no rows": {tc.d.rows(5).Args(), tc.empty}} {
			got, want := args[0], args[1]
			if len(got) != len(want) {
				t.Fatalf("%s, %s: %d arguments, want %d", tc.d, what, len(got), len(want))
			}
			for i := range got {
				if b, ok := got[i].([]byte); ok {
					got[i] = string(b)
				}
				if got[i] != want[i] {
					t.Errorf("%s, %s, argument %d: got %s, want %s", tc.d, what, i, got[i], want[i])
				}
			}
		}
	}
}

func TestServerVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		d       *Dialect
		version string
		says    string // "" = fits
	}{
		{PostgreSQL, "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu", ""},
		{PostgreSQL, "PostgreSQL 18devel on x86_64", ""},
		{PostgreSQL, "PostgreSQL 12.22 on x86_64", "the least that dialect PostgreSQL needs is PostgreSQL 13"},
		{PostgreSQL, "10.11.19-MariaDB-0+deb12u1", "does not fit the server"},
		{SQLite, "3.54.1", ""},
		{SQLite, "3.35.0", ""},
		{SQLite, "3.34.1", "the server is \"3.34.1\", the least that dialect SQLite needs is 3.35"},
		{MySQL, "10.11.19-MariaDB-0+deb12u1 Debian 12", ""},
		{MySQL, "10.6.1-MariaDB", ""},
		{MySQL, "10.5.23-MariaDB-log", "needs is MariaDB 10.6"},
		{MySQL, "8.0.36 MySQL Community Server - GPL", ""},
		{MySQL, "8.4.0 Source distribution", ""},
		{MySQL, "8.0.18 MySQL Community Server - GPL", "needs is 8.0.19"},
		{MySQL, "5.7.44-log MySQL Community Server (GPL)", "needs is 8.0.19"},
		{MySQL, "unknown", "does not fit"},
		{Oracle, "19.0.0.0.0 Oracle Database 19c Enterprise Edition, AL32UTF8", ""},
		{Oracle, "23.0.0.0.0 Oracle AI Database 26ai Free, AL32UTF8", ""},
		{Oracle, "18.0.0.0.0 Oracle Database 18c Express Edition, AL32UTF8", "needs is Oracle 19"},
		{Oracle, "8.0.36 MySQL Community Server - GPL", "does not fit"},
		{SQLServer, "Microsoft SQL Server 15.0.4153.1, compatibility level 150, READ_COMMITTED_SNAPSHOT 1", ""},
		{SQLServer, "Microsoft SQL Server 14.0.3456.2, compatibility level 140, READ_COMMITTED_SNAPSHOT 1", "needs is SQL Server 15"},
		{SQLServer, "Microsoft Azure SQL 12.0.2000.8, compatibility level 170, READ_COMMITTED_SNAPSHOT 1", ""},
		{SQLServer, "Microsoft SQL Server 16.0.1000.6, compatibility level 120, READ_COMMITTED_SNAPSHOT 1", "compatibility level 130"},
		{SQLServer, "Microsoft SQL Server 16.0.1000.6, compatibility level 160, READ_COMMITTED_SNAPSHOT 0", "SET READ_COMMITTED_SNAPSHOT ON"},
		{SQLServer, "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu", "does not fit the server"},
	} {
		err := tc.d.judge(tc.version)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s on %q: got %v, want %q", tc.d, tc.version, err, tc.says)
		}
	}
}

// TestMySQLErrors: errors have no type there that is known here, only a text.
func TestMySQLErrors(t *testing.T) {
	t.Parallel()
	s := &Store{d: MySQL, q: &texts{}, Config: Config{Options: Options{Prefix: "p_"}}}
	for text, want := range map[string]error{
		"Error 1146 (42S02): Table 'db.p_outbox' doesn't exist":                                                   outbox.ErrSchema,
		"Error 1142 (42000): DELETE command denied to user 'u'@'h' for table `db`.`p_lanes`":                      outbox.ErrRefused,
		"Error 1290 (HY000): The MariaDB server is running with the --read-only option so it cannot execute this": outbox.ErrRefused,
		"Error 1836 (HY000): Running in read-only mode":                                                           outbox.ErrRefused,
		"Error 1153 (08S01): Got a packet bigger than 'max_allowed_packet' bytes":                                 outbox.ErrRefused,
		"Error 1105 (HY000): Parameter of prepared statement is longer than 'max_allowed_packet' bytes":           outbox.ErrRefused,
		"packet for query is too large. Try adjusting the `Config.MaxAllowedPacket`":                              outbox.ErrRefused,
		"Error 1105 (HY000): Unknown error":                                                                       nil,
		"Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction":                  nil,
		"invalid connection": nil,
	} {
		err := errors.New(text)
		got := s.explain(t.Context(), relays, err)
		if !errors.Is(got, err) || want != nil && !errors.Is(got, want) || want == nil && got != err {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if strings.Contains(text, "acket") && !strings.Contains(got.Error(), "max_allowed_packet of the server") {
			t.Errorf("%q: the error does not name the limit: %v", text, got)
		}
	}
}

// TestSQLiteLacks: a build without JSON is told from one without tables.
func TestSQLiteLacks(t *testing.T) {
	t.Parallel()
	s := &Store{d: SQLite, q: &texts{}, Config: Config{Options: Options{Prefix: "p_"}}}
	for text, says := range map[string]string{
		"SQL logic error: no such table: json_each (1)": "built without JSON1",
		"no such table: json_each":                      "SQLITE_ENABLE_JSON1",
		"no such table: p_outbox":                       "postrider migrate",
	} {
		err := errors.New(text)
		got := s.explain(t.Context(), relays, err)
		if !errors.Is(got, err) || !errors.Is(got, outbox.ErrSchema) || !strings.Contains(got.Error(), says) {
			t.Errorf("%q: got %v, want %q", text, got, says)
		}
	}
}
