package app

import (
	"fmt"
	"net/url"
	"strconv"

	_ "github.com/microsoft/go-mssqldb" // driver sqlserver
	"github.com/microsoft/go-mssqldb/msdsn"
)

// SQLServer is an engine that a database URL can name.
const SQLServer = "sqlserver"

// sqlServerDatabase reads the driver's form of a URL, whose path is an instance and
// whose parameters are the driver's. What is not given becomes the name of the program
// and a limit to connecting.
func sqlServerDatabase(u *url.URL) (Database, error) {
	d := Database{Engine: SQLServer, Driver: "sqlserver", Name: nameOf(u), secret: secrets(u)}
	q := u.Query()
	name := q.Get("database")
	if u.Host == "" || name == "" {
		return Database{}, fmt.Errorf("the database URL %s names no host or no database: use sqlserver://user:password@host:1433?database=app", d.Name)
	}
	d.Name += "?database=" + url.QueryEscape(name)
	for parameter, value := range map[string]string{"app name": "postrider", "dial timeout": strconv.Itoa(int(connectTimeout.Seconds()))} {
		if !q.Has(parameter) {
			q.Set(parameter, value)
		}
	}
	u.RawQuery = q.Encode()
	d.DSN = u.String()
	if _, err := msdsn.Parse(d.DSN); err != nil {
		return Database{}, scrub(fmt.Errorf("the database URL: %w", err), d.secret)
	}
	return d, nil
}
