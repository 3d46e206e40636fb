package app

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Oracle is an engine that a database URL can name where the program is built with
// the tag oracle.
const Oracle = "oracle"

// oracleDatabase adds nothing to the URL: the driver's TIMEOUT would be one of each
// statement as well.
func oracleDatabase(u *url.URL) (Database, error) {
	d := Database{Engine: Oracle, Driver: "oracle", Name: nameOf(u), secret: secrets(u)}
	if !hasOracle {
		return Database{}, errors.New("this program was built without the driver for Oracle, which makes it 15 MB larger: build it with `go build -tags oracle ./cmd/postrider`")
	}
	if u.Host == "" || strings.Trim(u.Path, "/") == "" {
		return Database{}, fmt.Errorf("the database URL %s names no host or no service: use oracle://user:password@host:1521/service", d.Name)
	}
	if u.Port() == "" {
		u.Host += ":1521"
	}
	d.DSN = u.String()
	return d, nil
}
