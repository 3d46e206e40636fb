package app

import (
	"strings"
	"testing"

	"github.com/microsoft/go-mssqldb/msdsn"
)

func TestSQLServerURL(t *testing.T) {
	t.Parallel()
	d, err := ParseDatabase("sqlserver://u:hunter2@h:1434/inst?database=shop&encrypt=disable")
	if err != nil || d.Engine != SQLServer || d.Driver != "sqlserver" || d.Name != "sqlserver://u@h:1434/inst?database=shop" {
		t.Fatalf("got %+v, %v", d, err)
	}
	c, err := msdsn.Parse(d.DSN)
	if err != nil || c.User != "u" || c.Password != "hunter2" || c.Host != "h" || c.Port != 1434 || c.Instance != "inst" || c.Database != "shop" ||
		c.AppName != "postrider" || c.DialTimeout != connectTimeout {
		t.Errorf("the driver understands %+v, %v", c, err)
	}
	for _, url := range []string{
		"sqlserver://u:hunter2@h", "sqlserver://u:hunter2@/?database=shop", "sqlserver:u:hunter2@h?database=shop", "sqlserver://u:hunter2@h?database=shop&encrypt=perhaps",
	} {
		if _, err := ParseDatabase(url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	// Nobody listens there.
	if _, err := OpenStore(t.Context(), "sqlserver://u:hunter2@127.0.0.1:1?database=shop&dial+timeout=1", nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}
