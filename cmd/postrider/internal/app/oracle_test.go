package app

import (
	"strings"
	"testing"
)

// TestOracleURL holds with the driver and without it.
func TestOracleURL(t *testing.T) {
	t.Parallel()
	d, err := ParseDatabase("oracle://u:hunter2@h/svc?LOB%20FETCH=POST")
	if !hasOracle {
		if err == nil || !strings.Contains(err.Error(), "-tags oracle") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("without the driver: %+v, %v", d, err)
		}
		return
	}
	if err != nil || d.Engine != Oracle || d.DSN != "oracle://u:hunter2@h:1521/svc?LOB%20FETCH=POST" || d.Name != "oracle://u@h/svc" {
		t.Errorf("got %+v, %v", d, err)
	}
	for _, url := range []string{"oracle://u:hunter2@h", "oracle://u:hunter2@/svc", "oracle:u:hunter2@h/svc"} {
		if _, err := ParseDatabase(url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
	// Nobody listens there, and the driver's error has the whole DSN or not.
	if _, err := OpenStore(t.Context(), "oracle://u:hunter2@127.0.0.1:1/svc", nil); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}
