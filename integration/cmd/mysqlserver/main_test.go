package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/integration/testenv"
)

// programs makes shell scripts the only programs there are.
func programs(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// keys makes an empty file the keyring.
func keys(t *testing.T) {
	t.Helper()
	old := keyring
	t.Cleanup(func() { keyring = old })
	keyring = filepath.Join(t.TempDir(), "keyring.gpg")
	if err := os.WriteFile(keyring, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Without apt, or its packages, nothing is tested, which is said, and a failure only
// where it is required.
func TestWithoutApt(t *testing.T) {
	const known = "[ $1 = indextargets ] && echo Debian http://mirror.invalid/debian/ && exit\n"
	for _, tc := range []struct{ name, apt, want string }{
		{"missing", "", "apt-get is not installed"},
		{"no keyring", known, "the keys of Debian's archive are missing"},
		{"no list", "exit 0", "apt has no list of a mirror of Debian's"},
		{"other sources", "echo Debian-Security http://mirror.invalid/debian-security/\necho Ubuntu http://mirror.invalid/ubuntu/", "apt has no list of a mirror of Debian's"},
		{"offline", known + "echo 'E: Failed to fetch http://mirror.invalid/'\nexit 100", "apt-get: Failed to fetch http://mirror.invalid/"},
		{"broken", known + "exit 3", "apt-get: exit status 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keys(t)
			if tc.name == "no keyring" {
				keyring += "s"
			}
			scripts := map[string]string{"dpkg": "echo amd64"}
			if tc.apt != "" {
				scripts["apt-get"] = tc.apt
			}
			programs(t, scripts)
			t.Setenv(testenv.EnvRequire, "mysql")
			var out bytes.Buffer
			ok, err := run(t.Context(), &out, nil)
			if err != nil || !ok {
				t.Fatalf("got %v, %v, want it to pass", ok, err)
			}
			for _, want := range []string{tc.want, "not tested on MySQL"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it says %q, which lacks %q", &out, want)
				}
			}
			t.Setenv(testenv.EnvRequire, "mysql,"+required)
			if _, err := run(t.Context(), &out, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("required: %v, want %q", err, tc.want)
			}
		})
	}
}

// What is not signed with the keys of Debian's archive is not run, where there is an
// apt that can tell.
func TestUnsignedMirror(t *testing.T) {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		t.Log(err)
		return
	}
	keys(t)
	mirror := t.TempDir()
	list := filepath.Join(mirror, "dists", suite, "main", "binary-amd64")
	if err := os.MkdirAll(list, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(list, "Packages"): "Package: " + pkg + "\nVersion: 1\nArchitecture: amd64\nFilename: evil.deb\nSize: 1\n",
		filepath.Join(mirror, "dists", suite, "Release"): "Suite: " + suite + "\nCodename: sid\nComponents: main\nArchitectures: amd64\n" +
			"Date: Tue, 01 Dec 2026 00:00:00 UTC\nSHA256:\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := os.Getenv("PATH")
	programs(t, map[string]string{
		"dpkg":    "echo amd64",
		"apt-get": "PATH=" + path + "\n[ $1 = indextargets ] && echo Debian file:" + mirror + "/ || exec " + apt + ` "$@"`,
	})
	dir := t.TempDir()
	if err := unpack(t.Context(), dir, filepath.Join(dir, "root")); err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("got %v, want that it is not signed", err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	if _, err := run(t.Context(), &bytes.Buffer{}, []string{"8.0"}); err == nil || !strings.Contains(err.Error(), "8.0") {
		t.Errorf("got %v, want an error that names 8.0", err)
	}
}
