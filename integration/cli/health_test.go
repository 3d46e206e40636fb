package cli

import (
	"encoding/json"
	"net"
	"net/http"
	"regexp"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
)

var readyURL = regexp.MustCompile(`ready=(http://\S+/ready)`)

// A relay tells whether it is ready.
func TestHealth(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db database) {
		if code, p := run(t, nil, "migrate", "--db", db.url); code != 0 {
			t.Fatalf("migrate: %d, %s", code, &p.stderr)
		}
		p := start(t, nil, "run", "--db", db.url, "--nats", testenv.NATS(t), "--health", "127.0.0.1:0")
		var url string
		eventually(t, "the address of the health pages", func() bool {
			if m := readyURL.FindStringSubmatch(p.stderr.String()); m != nil {
				url = m[1]
			}
			return url != ""
		})
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var body struct {
			Status string
			Stores map[string]struct{ Status string }
		}
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 200 || body.Status != "healthy" || body.Stores["outbox"].Status != "healthy" {
			t.Errorf("ready: got %d, %+v", res.StatusCode, body)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

func TestHealthAddress(t *testing.T) {
	t.Parallel()
	db := sqlite(t)
	if code, p := run(t, nil, "migrate", "--db", db.url); code != 0 {
		t.Fatalf("migrate: %d, %s", code, &p.stderr)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, addr := range []string{"nowhere", taken.Addr().String()} {
		if code, p := run(t, nil, "run", "--db", db.url, "--nats", testenv.NATS(t), "--health", addr); code != 2 {
			t.Errorf("--health %s: exit status %d, want 2: %s", addr, code, &p.stderr)
		}
	}
}
