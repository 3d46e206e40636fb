package recording_test

import (
	"database/sql/driver"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/store/schema"
	"github.com/postrider/postrider/store/sqlstore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// engine is a database family whose statements are driven through a driver that
// answers by itself.
type engine struct {
	name    schema.Engine
	dialect *sqlstore.Dialect
	mark    string // before an argument's number; "" is a question mark alone
	version string // the server's answer to what it is
	here    string // the expression for the schema at hand
	// settings is how a question after the session's settings begins, which a row of an
	// empty text answers; "" where there is none.
	settings string
	// open and close are the quotes of a name.
	open, close string
	// direct: the driver runs a text with arguments without preparing it.
	direct bool
	// check is the driver's NamedValueChecker.
	check func(*driver.NamedValue) error
	// value is a value of a row as the driver returns it from a column that holds such
	// values in this engine's schema.
	value func(any) driver.Value
	// row is a row of a statement as this engine's columns have it, before its values;
	// nil leaves it.
	row func(statement string, r row) row
	// args says what is wrong with the arguments of a text as a whole; it may be nil.
	args func(text string, args []driver.NamedValue) error
	// users: a schema is a user, and not created.
	users bool
	// prevs: a read tells of a key's earlier rows by itself.
	prevs bool
	// denied is the server's error for the lack of a right, where only trying shows it.
	denied string
	// unused are the texts of the dialect that stand for something that this test does
	// not do.
	unused []string
}

var engines = []*engine{
	{
		name: schema.MySQL, dialect: sqlstore.MySQL, version: "8.4.0 MySQL Community Server - GPL", here: "DATABASE()",
		settings: "SELECT CONCAT_WS(', ', CASE WHEN @@",
		open:     "`", close: "`", direct: true,
		check: func(nv *driver.NamedValue) (err error) {
			nv.Value, err = driver.DefaultParameterConverter.ConvertValue(nv.Value)
			return err
		},
		value: valueMySQL, denied: "Error 1142 (42000): SELECT command denied",
	},
	{
		name: schema.Oracle, dialect: sqlstore.Oracle, version: "19.0.0.0.0 Oracle Database 19c Enterprise Edition, AL32UTF8",
		mark: ":", here: "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')", open: `"`, close: `"`, direct: true, users: true, prevs: true,
		check: checkOracle, args: argsOracle, row: rowOracle, value: valueOracle,
		denied: "ORA-01031: insufficient privileges",
	},
	{
		name: schema.SQLServer, dialect: sqlstore.SQLServer, mark: "@p", here: "SCHEMA_NAME()", open: "[", close: "]",
		version: "Microsoft SQL Server 16.0.4135.4, compatibility level 160, READ_COMMITTED_SNAPSHOT 1",
		check:   checkSQLServer, args: argsSQLServer, value: valueSQLServer,
	},
}

// valueMySQL: go-sql-driver/mysql hands over text and bytes alike.
func valueMySQL(v any) driver.Value {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case name:
		return []byte(v)
	}
	return v
}

// known is a step of a statement, as a driver may see it.
type known struct {
	statement string
	step, of  int
	asks      bool
	pattern   *regexp.Regexp
}

func (k known) label() string {
	if k.of == 1 {
		return k.statement
	}
	return k.statement + " " + strconv.Itoa(k.step+1)
}

// statements are the golden texts of package sqlcore, each step a pattern: with any
// limit, any number of rows, and with a schema or without.
func (e *engine) statements(tb testing.TB) (list []known) {
	tb.Helper()
	root, err := testenv.Root()
	if err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "store", "internal", "sqlcore", "testdata", string(e.name), "*.sql"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no statements of %s: %v", e.name, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		statement := strings.TrimSuffix(filepath.Base(f), ".sql")
		parts := strings.Split(strings.TrimSuffix(string(text), "\n"), ";;")
		for i, part := range parts {
			part = strings.TrimSpace(part)
			k := known{statement: statement, step: i, of: len(parts), asks: strings.HasPrefix(part, "if ")}
			part = strings.TrimPrefix(strings.TrimPrefix(part, "> "), "if ")
			k.pattern = regexp.MustCompile(`(?s)^` + e.pattern(part) + `$`)
			list = append(list, k)
		}
	}
	return list
}

// schemaTexts are the statements that make the tables.
func (e *engine) schemaTexts(tb testing.TB) map[string]bool {
	tb.Helper()
	texts := map[string]bool{}
	for _, n := range []schema.Names{{}, {Schema: otherSchema}} {
		steps, err := schema.Steps(e.name, n)
		if err != nil {
			tb.Fatal(err)
		}
		for _, step := range steps {
			for _, text := range step.Statements {
				texts[text] = true
			}
		}
	}
	return texts
}

// otherSchema is where one store has its tables.
const otherSchema = "shop"

var (
	repeated = regexp.MustCompile(`(?s)^\[\[(.*?)\|(.*?)\]\]`)
	parted   = regexp.MustCompile(`(?s)^\[<(.*?)\|(.*?)>\]`)
	limit    = regexp.MustCompile(`^(LIMIT 32\b|TOP \(32\)|FETCH FIRST 32 ROWS|FETCH NEXT 32 ROWS)`)
	argument = regexp.MustCompile(`^[?#]\d+[$!^]?`)
	listed   = regexp.MustCompile(`^#\d+\.\.`)
)

// pattern is a step's text as a regular expression.
func (e *engine) pattern(text string) string {
	mark := `\?`
	if e.mark != "" {
		mark = regexp.QuoteMeta(e.mark) + `\d+`
	}
	var b strings.Builder
	for len(text) > 0 {
		switch {
		case repeated.MatchString(text):
			m := repeated.FindStringSubmatch(text)
			between, body := e.pattern(m[1]), e.pattern(m[2])
			b.WriteString("(?:" + body + "(?:" + between + body + ")*)")
			text = text[len(m[0]):]
		case parted.MatchString(text):
			m := parted.FindStringSubmatch(text)
			between, body := e.pattern(m[1]), e.pattern(m[2])
			b.WriteString("(?:" + body + "(?:" + between + body + ")*)")
			text = text[len(m[0]):]
		case listed.MatchString(text):
			b.WriteString(mark + "(?:, " + mark + ")*")
			text = text[len(listed.FindString(text)):]
		case argument.MatchString(text):
			b.WriteString(mark)
			text = text[len(argument.FindString(text)):]
		case limit.MatchString(text):
			s := limit.FindString(text)
			b.WriteString(strings.Replace(regexp.QuoteMeta(s), "32", `\d+`, 1))
			text = text[len(s):]
		case strings.HasPrefix(text, e.here):
			b.WriteString("(?:" + regexp.QuoteMeta(e.here) + "|'" + otherSchema + "')")
			text = text[len(e.here):]
		case strings.HasPrefix(text, e.open+schema.DefaultPrefix):
			b.WriteString("(?:" + regexp.QuoteMeta(e.open+otherSchema+e.close) + `\.)?` + regexp.QuoteMeta(e.open))
			text = text[len(e.open):]
		default:
			b.WriteString(regexp.QuoteMeta(text[:1]))
			text = text[1:]
		}
	}
	return b.String()
}
