package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
)

// Without npm, or its packages, nothing is tested, which is said, and a failure
// only where it is required.
func TestWithoutNpm(t *testing.T) {
	for _, tc := range []struct{ name, npm, want string }{
		{"missing", "", "npm is not installed"},
		{"offline", "#!/bin/sh\necho 'npm error code ENOTFOUND'\nexit 1\n", "npm did not answer with the packages: ENOTFOUND"},
		{"broken", "#!/bin/sh\nexit 3\n", "exit status 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.npm != "" {
				if err := os.WriteFile(filepath.Join(dir, "npm"), []byte(tc.npm), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			t.Setenv(testenv.EnvRequire, "postgres")
			var out bytes.Buffer
			ok, err := run(t.Context(), &out, nil)
			if err != nil || !ok {
				t.Fatalf("got %v, %v, want it to pass", ok, err)
			}
			if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
				tc.want = "the packages are for linux/amd64"
			}
			for _, want := range []string{tc.want, "not tested on PostgreSQL 16.14, 17.10, 18.4"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it says %q, which lacks %q", &out, want)
				}
			}
			t.Setenv(testenv.EnvRequire, "postgres,"+required)
			if _, err := run(t.Context(), &out, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("required: %v, want %q", err, tc.want)
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	if _, err := run(t.Context(), &bytes.Buffer{}, []string{"18.4", "9.6"}); err == nil || !strings.Contains(err.Error(), "9.6") {
		t.Errorf("got %v, want an error that names 9.6", err)
	}
}
