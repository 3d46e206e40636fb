package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const localPostgres = "postgres://postgres:postgres@127.0.0.1:5432/postgres?sslmode=disable"

// StartPostgres finds or starts a PostgreSQL server on which the URL's role may
// create databases. The caller stops it.
func StartPostgres(ctx context.Context) (*Server, error) {
	if s := os.Getenv(EnvPostgres); s != "" {
		if u, err := url.Parse(s); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			return nil, fmt.Errorf("%s must be a URL like postgres://user:password@host:5432/postgres", EnvPostgres)
		}
		return checkedPostgres(ctx, &Server{URL: s, Origin: "environment"})
	}
	if os.Getenv(EnvLocal) == "1" && listening(ctx, "127.0.0.1:5432") {
		return checkedPostgres(ctx, &Server{URL: localPostgres, Origin: "local"})
	}
	bin, private := postgresBinaries(ctx)
	if private == nil {
		var s *Server
		if s, private = StartPostgresFrom(ctx, bin); private == nil {
			return s, nil
		}
	}
	s, compose := composePostgres(ctx)
	if compose == nil {
		return checkedPostgres(ctx, s)
	}
	return nil, fmt.Errorf("set %s, or %s=1 with a server on port 5432, or mend one of: %w", EnvPostgres, EnvLocal, errors.Join(private, compose))
}

func checkedPostgres(ctx context.Context, s *Server) (*Server, error) {
	db, err := sql.Open("pgx", s.URL)
	if err == nil {
		defer db.Close()
		var may bool
		err = db.QueryRowContext(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1), rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&s.Version, &may)
		if err == nil && !may {
			err = errors.New("the role may not create databases: ALTER ROLE ... CREATEDB")
		}
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("PostgreSQL at %s: %w", Redact(s.URL), err)
	}
	return s, nil
}

// StartPostgresFrom starts a private server of the binaries in the directory
// bin, which every user must be able to read. The caller stops it.
func StartPostgresFrom(ctx context.Context, bin string) (*Server, error) {
	c, err := startCluster(ctx, bin)
	if err != nil {
		return nil, err
	}
	return checkedPostgres(ctx, &Server{URL: c.URL, Origin: "private", stop: c.end})
}

// postgresBinaries finds the directory of initdb, pg_ctl and postgres. Debian
// keeps it off the PATH.
func postgresBinaries(ctx context.Context) (string, error) {
	var dirs []string
	if p, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return majorOf(b) - majorOf(a) })
		dirs = append(dirs, found...)
	}
	for _, d := range dirs {
		if executable(d, "initdb") && executable(d, "pg_ctl") && executable(d, "postgres") {
			return d, nil
		}
	}
	return "", errors.New("no PostgreSQL server binaries are installed (Debian: apt-get install postgresql)")
}

func executable(dir, name string) bool {
	_, err := exec.LookPath(filepath.Join(dir, name))
	return err == nil
}

func majorOf(path string) (n int) {
	for _, c := range path {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		}
	}
	return n
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func composePostgres(ctx context.Context) (*Server, error) {
	docker, err := exec.LookPath("docker")
	if err != nil {
		return nil, errors.New("no docker command for compose.test.yaml")
	}
	probe, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := exec.CommandContext(probe, docker, "info").Run(); err != nil {
		return nil, fmt.Errorf("docker info: %w (no container engine runs)", err)
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	compose := fmt.Sprintf("POSTRIDER_TEST_POSTGRES_PORT=%d %s compose -p %s -f %s", port, quote(docker), Name("postrider-test-"), quote(filepath.Join(root, "compose.test.yaml")))
	_, end, err := supervise(ctx, compose+" up -d --wait postgres >log 2>&1", compose+" down -v >/dev/null 2>&1", false)
	if err != nil {
		return nil, fmt.Errorf("docker compose up postgres: %w", err)
	}
	return &Server{
		URL:    fmt.Sprintf("postgres://postgres:postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		Origin: "compose", stop: end,
	}, nil
}
