package main

import (
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"run","Package":"p/sqlstore","Test":"TestConformance/mysql/C1_claims"}
{"Action":"pass","Package":"p/sqlstore","Test":"TestConformance/mysql/C1_claims"}
{"Action":"pass","Package":"p/sqlstore","Test":"TestConformance/mysql"}
{"Action":"pass","Package":"p/pgxstore","Test":"TestConformance/C1_claims"}
{"Action":"pass","Package":"p/inbox","Test":"TestConformance/sqlite/I3_one_effect"}
{"Action":"pass","Package":"p/pgxstore","Test":"TestInbox/I3_one_effect"}
{"Action":"pass","Package":"p/inbox"}
`
	rules, failed, err := read(strings.NewReader(events))
	if err != nil || len(failed) != 0 {
		t.Fatal(failed, err)
	}
	columns := engines("integration/sqlstore mysql 10.11.19-MariaDB-0+deb12u1\nintegration/inbox sqlite 3.54.1\nintegration/pgxstore postgres 15.18\n")
	page, err := replace([]byte("head\n"+begin+"old\n"+end+"tail\n"), table(rules, columns))
	if err != nil {
		t.Fatal(err)
	}
	const want = "head\n" + begin + `| rule | PostgreSQL 15.18 | PostgreSQL 15.18, pgxstore | MariaDB 10.11.19 | MySQL | SQLite 3.54.1 | Oracle | SQL Server |
|---|---|---|---|---|---|---|---|
| C1 claims | not run | pass | pass | not run | not run | not run | not run |
| I3 one effect | not run | pass | not run | not run | pass | not run | not run |
` + end + "tail\n"
	if string(page) != want {
		t.Errorf("got\n%s\nwant\n%s", page, want)
	}
	if _, failed, _ := read(strings.NewReader(`{"Action":"fail","Package":"p/inbox","Test":"TestConformance/sqlite/I1_x"}`)); len(failed) != 1 || failed[0] != "sqlite I1_x" {
		t.Errorf("failed rules: got %q", failed)
	}
	if _, err := replace([]byte("no marks"), ""); err == nil {
		t.Error("a page without marks was taken")
	}
}
