package recording_test

import (
	"database/sql/driver"
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"unicode/utf16"

	mssql "github.com/microsoft/go-mssqldb"
)

// What microsoft/go-mssqldb does with arguments and columns, by its source.

// checkSQLServer is the driver's own check, which looks at no state of its connection
// for what a store sends.
func checkSQLServer(nv *driver.NamedValue) error { return new(mssql.Conn).CheckNamedValue(nv) }

// argsSQLServer: the driver declares a NULL as nvarchar(1), which no column of bytes
// takes and a comparison with a number does not want, and text and bytes with their
// length: of a list any length would be a plan of its own.
func argsSQLServer(text string, args []driver.NamedValue) error {
	for _, a := range args {
		mark := fmt.Sprintf(`@p%d\b`, a.Ordinal)
		length, limit := 0, 4000
		switch v := a.Value.(type) {
		case nil:
			if all, converted := count(mark, text), count(`CONVERT\(BIGINT, `+mark, text); all != converted {
				return fmt.Errorf("argument %d is NULL and not converted everywhere", a.Ordinal)
			}
			continue
		case string:
			length = len(utf16.Encode([]rune(v)))
		case []byte:
			length, limit = len(v), 8000
		default:
			continue
		}
		list := count(`OPENJSON\(`+mark, text)+count(`SUBSTRING\(`+mark, text) > 0
		if list && length < limit && (length < 128 || bits.OnesCount(uint(length)) != 1) {
			return fmt.Errorf("argument %d is a list of %d units, which is a plan of its own", a.Ordinal, length)
		}
		if _, ok := a.Value.([]byte); ok && strings.Contains(text, fmt.Sprintf("OPENJSON(@p%d)", a.Ordinal)) {
			return fmt.Errorf("argument %d is a list and sent as bytes", a.Ordinal)
		}
	}
	return nil
}

func count(expr, text string) int { return len(regexp.MustCompile(expr).FindAllString(text, -1)) }

// valueSQLServer: microsoft/go-mssqldb has text for NVARCHAR, and bytes for VARBINARY,
// in which names are kept.
func valueSQLServer(v any) driver.Value {
	if v, ok := v.(name); ok {
		return []byte(v)
	}
	return v
}
