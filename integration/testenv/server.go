package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
)

// Server is an engine that tests can use.
type Server struct {
	URL     string
	Version string
	Origin  string // how it was found: environment, local, private, embedded, compose
	stop    func()
}

// Stop ends the server if this process started it.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Root is the directory of the repository: the nearest one above the working
// directory that holds modules.txt.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "modules.txt")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no modules.txt above the working directory: run inside the repository")
		}
		dir = up
	}
}

// Redact returns the URL without its password, for messages.
func Redact(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(a URL that cannot be parsed)"
	}
	return u.Redacted()
}

func listening(ctx context.Context, addr string) bool {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// freePort is free now; whoever starts a server on it tries again with
// another when somebody was faster.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
