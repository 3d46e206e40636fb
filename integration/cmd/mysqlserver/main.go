// Command mysqlserver is `make test-mysql`: it runs what depends on the engine on
// MySQL itself, which Debian's stable release does not have. The packages come with
// apt from Debian's unstable suite, off the mirror that the machine's own sources name,
// signatures verified, into a directory that goes at the end. Nothing is installed and
// no script of a package is run: the server uses the C library that comes with it.
//
// Where apt or the keyring is missing, where it knows no mirror of Debian's or that does
// not answer in time it says so and exits with 0, unless POSTRIDER_TEST_REQUIRE names
// mysql-server. It exits with 1 when the server does not start or a test on it failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/integration/cmd/internal/suites"
	"github.com/postrider/postrider/integration/testenv"
)

const (
	// required is the name in POSTRIDER_TEST_REQUIRE.
	required = "mysql-server"
	suite    = "unstable"
	pkg      = "mysql-server-core"
	// aptTimeout is for a list of 11 MB and packages of 60 MB.
	aptTimeout = 90 * time.Second
)

// keyring has the keys of Debian's archive.
var keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// others are the tests of engines other than MySQL.
var others = []string{"SQLite", "Postgres", "TestStandby", "/^(postgres|pgxstore|sqlite)$", "//^(postgres|pgxstore|sqlite)$"}

func butFor(more ...string) []string { return slices.Concat(others, more) }

// tested leaves out what another server does not change as well.
var tested = []suites.Suite{
	{Name: "sqlstore", Skip: butFor("TestModes", "TestMySQLDrivers", "TestManyAtOnce", "TestPoolTooSmall", "TestLanesHaveOneOwner", "TestLongestNames", "TestNamesCannotInject")},
	{Name: "inbox", Skip: others},
	{Name: "histories", Skip: butFor("TestBreachesAreRejected")},
	{Name: "relay", Skip: butFor("TestDrainCosts", "TestClocksTenMinutesApart")},
	{Name: "producers", Skip: others},
}

func main() { suites.Main("mysqlserver", run) }

func run(ctx context.Context, out io.Writer, args []string) (ok bool, err error) {
	if len(args) > 0 {
		return false, fmt.Errorf("%s: it takes no arguments", strings.Join(args, " "))
	}
	root, err := testenv.Root()
	if err != nil {
		return false, err
	}
	dir, err := suites.TempDir("mysqlserver")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	files := filepath.Join(dir, "root")
	if err := unpack(ctx, dir, files); err != nil {
		return suites.Untested(ctx, out, required, err, "MySQL")
	}
	if err := suites.Build(ctx, root, dir, tested); err != nil {
		return false, err
	}
	server, err := testenv.StartMySQLFrom(ctx, files)
	if err != nil {
		return false, err
	}
	defer server.Stop()
	// Tests that start a server of their own find this one's files too.
	return suites.Run(ctx, out, root, dir, "MySQL "+server.Version, tested, []string{
		testenv.EnvMySQL + "=" + server.URL, testenv.EnvMySQLRoot + "=" + files, testenv.EnvRequire + "=" + testenv.EngineMySQL,
	}, server.URL+"mysql"), nil
}

// unpack puts the server and all that it depends on below the directory files, with
// apt's state and the packages in dir.
func unpack(ctx context.Context, dir, files string) error {
	ctx, cancel := context.WithTimeout(ctx, aptTimeout)
	defer cancel()
	for _, name := range []string{"apt-get", "dpkg"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is not installed", name)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("the keys of Debian's archive are missing: %w", err)
	}
	mirror, err := mirror(ctx)
	if err != nil {
		return err
	}
	conf, err := configure(ctx, filepath.Join(dir, "apt"), mirror)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"update"}, {"install", "--yes", "--download-only", "--no-install-recommends", pkg}} {
		if _, err := output(ctx, "apt-get", append([]string{"-q", "-c", conf}, args...)...); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "apt", "cache", "archives", "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if _, err := output(ctx, "dpkg", "-x", p, files); err != nil {
			return err
		}
	}
	return nil
}

// mirror is that of the machine's own sources for Debian.
func mirror(ctx context.Context) (string, error) {
	list, err := output(ctx, "apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages", "Component: main")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(list) {
		// Not Debian-Security, nor Debian Backports.
		if f := strings.Fields(line); len(f) == 2 && f[0] == "Debian" {
			return f[1], nil
		}
	}
	return "", errors.New("apt has no list of a mirror of Debian's: apt-get update, where sources name one")
}

// configure makes a directory for apt, in which nothing is installed and one source
// known, and returns what is to be read after the machine's own configuration.
func configure(ctx context.Context, dir, mirror string) (conf string, err error) {
	arch, err := output(ctx, "dpkg", "--print-architecture")
	if err != nil {
		return "", err
	}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return "", err
		}
	}
	conf = filepath.Join(dir, "apt.conf")
	for name, text := range map[string]string{
		"status":       "",
		"sources.list": fmt.Sprintf("deb [arch=%s target=Packages signed-by=%s] %s %s main\n", strings.TrimSpace(arch), keyring, mirror, suite),
		// The machine's hooks are for its own lists; a list that could not be fetched is
		// an error here; a mirror may lag behind for days, and has to be signed.
		"apt.conf": fmt.Sprintf(`#clear APT::Update;
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::Check-Valid-Until "false";
Acquire::Retries "1";
Dir::State "%[1]s/state/";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache/";
Dir::Etc::SourceList "%[1]s/sources.list";
Dir::Etc::SourceParts "-";
`, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return conf, nil
}

var aptError = regexp.MustCompile(`(?m)^(?:E|dpkg-deb: error|dpkg: error): (.*)$`)

// output runs a command and returns what it said, or an error with what it said first
// of what is wrong.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	switch m := aptError.FindSubmatch(said); {
	case err == nil:
		return string(said), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("the mirror did not answer within %v", aptTimeout)
	case m != nil:
		return "", fmt.Errorf("%s: %s", name, m[1])
	}
	return "", fmt.Errorf("%s: %w", name, err)
}
