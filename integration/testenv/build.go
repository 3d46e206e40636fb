package testenv

import (
	"fmt"
	"os/exec"
)

// RaceFlags are those of go build and go test for the race detector. SQLite, C
// that was translated to Go, is left out of it: it would be ten times slower, and
// guards its memory with mutexes of its own. Its driver is not left out.
var RaceFlags = []string{
	"-race",
	"-gcflags=modernc.org/libc/...=-race=false",
	"-gcflags=modernc.org/memory/...=-race=false",
	"-gcflags=modernc.org/sqlite/lib/...=-race=false",
}

// BuildPostrider builds the program as the file dst, under the race detector
// where the tests are.
func BuildPostrider(dst string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", dst}
	if Race {
		args = append(args, RaceFlags...)
	}
	cmd := exec.Command("go", append(args, "./cmd/postrider")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/postrider: %w\n%s", err, out)
	}
	return nil
}
