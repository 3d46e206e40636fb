package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	yaml3 "go.yaml.in/yaml/v3"

	"github.com/postrider/postrider/outbox"
)

// Flags are texts: environment and file hand over texts too, and all three go
// through one conversion (settings.set).

// dbFlags say which outbox is meant; every command has them.
type dbFlags struct {
	Config string `short:"c" placeholder:"FILE" help:"YAML file with any of the settings of any command."`
	DB     string `name:"db" placeholder:"URL" help:"Database: postgres://user:password@host:5432/database, mysql://user:password@host:3306/database, oracle://user:password@host:1521/service (in a program built with -tags oracle), sqlserver://user:password@host:1433?database=name or sqlite:path. The environment variable keeps the password out of process lists."`
	Schema string `placeholder:"NAME" help:"Schema of the tables. Default: the connection's."`
	Prefix string `placeholder:"TEXT" help:"Prefix of the table names. Default: postrider_."`
}

// storeFlags are those of the commands that care which routes there are.
type storeFlags struct {
	dbFlags
	Routes string `placeholder:"ROUTE,..." help:"Routes, each NAME or NAME:ORDERED:UNORDERED with the numbers of lanes. Default: default:16:8 for migrate, every route of the outbox for run."`
}

// relayFlags are the settings of the run command.
type relayFlags struct {
	NATS         string `name:"nats" placeholder:"URL" help:"NATS servers, separated by commas."`
	NATSCreds    string `name:"nats-creds" placeholder:"FILE" help:"NATS credentials file."`
	Stream       string `placeholder:"NAME" help:"JetStream stream that must take every message. Default: whichever has the subject."`
	Batch        string `placeholder:"N" help:"Most messages in one send, 1 to 1024. Default: 500."`
	InFlight     string `placeholder:"N" help:"Most sends at once per route, 1 to 64. Default: 4."`
	TTL          string `name:"ttl" placeholder:"DURATION" help:"Life of a lease without renewal, so how long a crashed relay's lanes wait; 1s to 1h. Default: 15s."`
	Poll         string `placeholder:"DURATION" help:"Slowest poll when idle, 1ms to 1h. Default: 500ms."`
	MaxAttempts  string `placeholder:"N" help:"Attempts before a message is given up, see --poison; --max-attempts=-1 for no end. Default: 10."`
	Poison       string `placeholder:"POLICY" help:"What becomes of a message that was refused for good or has spent its attempts: dead-letter, and its key goes on, or park, and its key waits for an operator. Default: dead-letter."`
	BackoffMin   string `placeholder:"DURATION" help:"Shortest wait before a retry. Default: 100ms."`
	BackoffMax   string `placeholder:"DURATION" help:"Longest wait before a retry. Default: 1m."`
	Grace        string `placeholder:"DURATION" help:"How long a stop lets sends finish. Default: 10s."`
	RequireOrder bool   `help:"Refuse a store that cannot keep order per key."`
	Migrate      bool   `help:"Create or upgrade the tables at the start."`
	Health       string `placeholder:"HOST:PORT" help:"Serve /live and /ready there by HTTP; :PORT is for this machine alone. Default: not served."`
	HealthCount  string `placeholder:"N" help:"Not ready from so many pending messages on; goes with --health. Default: no limit."`
	HealthAge    string `placeholder:"DURATION" help:"Not ready once the oldest pending message is so old; goes with --health. Default: no limit."`
	LogFormat    string `placeholder:"FORMAT" help:"text or json. Default: text."`
	LogLevel     string `placeholder:"LEVEL" help:"debug, info, warn or error. Debug shows every failed attempt. Default: info."`
}

// settings are the merged settings of a command.
type settings struct {
	db, schema, prefix      string
	routes                  []outbox.Route
	nats, natsCreds, stream string
	batch, inFlight         int
	maxAttempts             int
	ttl, poll, grace        time.Duration
	backoffMin, backoffMax  time.Duration
	poison                  string
	health                  string
	healthCount             int
	healthAge               time.Duration
	requireOrder, migrate   bool
	logFormat, logLevel     string
}

// fields is the one list of keys.
func (s *settings) fields() map[string]any {
	return map[string]any{
		"db": &s.db, "schema": &s.schema, "prefix": &s.prefix, "routes": &s.routes,
		"nats": &s.nats, "nats_creds": &s.natsCreds, "stream": &s.stream,
		"batch": &s.batch, "in_flight": &s.inFlight, "max_attempts": &s.maxAttempts,
		"ttl": &s.ttl, "poll": &s.poll, "grace": &s.grace,
		"poison": &s.poison, "backoff_min": &s.backoffMin, "backoff_max": &s.backoffMax,
		"health": &s.health, "health_count": &s.healthCount, "health_age": &s.healthAge,
		"require_order": &s.requireOrder, "migrate": &s.migrate,
		"log_format": &s.logFormat, "log_level": &s.logLevel,
	}
}

const envPrefix = "POSTRIDER_"

func envName(key string) string  { return envPrefix + strings.ToUpper(key) }
func flagName(key string) string { return "--" + strings.ReplaceAll(key, "_", "-") }

// source is one layer of settings and how to name a key of it in messages.
type source struct {
	name func(key string) string
	k    *koanf.Koanf
}

// settings merges flags, environment and file, in this order of precedence. An
// unknown key is refused wherever it stands: it can only be a mistake.
func (p *program) settings() (*settings, error) {
	flags, config, err := p.flagSource()
	if err != nil {
		return nil, err
	}
	env, envConfig, err := p.envSource()
	if err != nil {
		return nil, err
	}
	sources := []source{flags, env}
	if config == "" {
		config = envConfig
	}
	if config != "" {
		file, err := fileSource(config)
		if err != nil {
			return nil, err
		}
		sources = append(sources, file)
	}
	s := &settings{}
	fields := s.fields()
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		for _, src := range sources {
			if src.k.Exists(key) {
				if err := set(fields[key], src.k.Get(key)); err != nil {
					return nil, usagef("%s %w", src.name(key), err)
				}
				if zero(fields[key]) {
					return nil, usagef("%s is 0, which would mean the default: leave it out for that, or use a number within its limits", src.name(key))
				}
				break
			}
		}
	}
	return s, nil
}

// zero tells whether a number is 0. The relay's options take it for the default:
// who writes max_attempts 0 or grace 0 means something else.
func zero(field any) bool {
	switch f := field.(type) {
	case *int:
		return *f == 0
	case *time.Duration:
		return *f == 0
	}
	return false
}

func (p *program) flagSource() (source, string, error) {
	fields := (&settings{}).fields()
	given, config := map[string]any{}, ""
	for _, path := range p.parsed.Path {
		if path.Flag == nil {
			continue
		}
		key := strings.ReplaceAll(path.Flag.Name, "-", "_")
		if key == "config" {
			config, _ = p.parsed.FlagValue(path.Flag).(string)
		} else if fields[key] != nil {
			given[key] = p.parsed.FlagValue(path.Flag)
		}
	}
	k, err := fromMap(given)
	return source{flagName, k}, config, err
}

func (p *program) envSource() (source, string, error) {
	fields := (&settings{}).fields()
	given, config := map[string]any{}, ""
	for _, e := range p.environ {
		name, value, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		key := strings.ToLower(rest)
		switch {
		case !ours || foreign(rest):
		case key == "config":
			config = value
		case fields[key] == nil:
			return source{}, "", usagef("environment variable %s is unknown: %s", name, suggest(key, envName))
		case value != "":
			given[key] = value
		}
	}
	k, err := fromMap(given)
	return source{envName, k}, config, err
}

// foreign are names under our prefix that are not settings: the tests', and
// what Kubernetes sets in every container when a service is called postrider.
func foreign(rest string) bool {
	return strings.HasPrefix(rest, "TEST_") || rest == "SERVICE_HOST" || strings.HasPrefix(rest, "SERVICE_PORT") ||
		rest == "PORT" || strings.HasPrefix(rest, "PORT_")
}

func fromMap(m map[string]any) (*koanf.Koanf, error) {
	k := koanf.New(".")
	return k, k.Load(confmap.Provider(m, ""), nil)
}

const maxConfig = 1 << 20

// several tells whether a file has more YAML documents than the first, which hold
// anything.
func several(data []byte) bool {
	dec := yaml3.NewDecoder(bytes.NewReader(data))
	for n := 0; ; n++ {
		var doc yaml3.Node
		if dec.Decode(&doc) != nil {
			return false
		}
		if n > 0 && len(doc.Content) > 0 && doc.Content[0].Tag != "!!null" {
			return true
		}
	}
}

func fileSource(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, usagef("configuration file: %w", err)
	}
	defer f.Close()
	// A device has no end.
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return source{}, usagef("configuration file: %w", err)
	}
	if len(data) > maxConfig {
		return source{}, usagef("configuration file %s is longer than %d bytes: name the file of settings", path, maxConfig)
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), yaml.Parser()); err != nil {
		return source{}, usagef("configuration file %s is not a YAML mapping of settings: %w", path, err)
	}
	if several(data) {
		return source{}, usagef("configuration file %s has several YAML documents, and only the first would count: remove the line --- between them", path)
	}
	fields := (&settings{}).fields()
	for _, key := range k.Keys() {
		if fields[key] == nil {
			return source{}, usagef("configuration file %s: key %q is unknown: %s", path, key, suggest(key, func(k string) string { return k }))
		}
	}
	return source{func(key string) string { return fmt.Sprintf("configuration file %s: %s", path, key) }, k}, nil
}

// suggest names the nearest key.
func suggest(key string, name func(string) string) string {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		key = key[i+1:]
	}
	best, least := "", math.MaxInt
	for _, k := range slices.Sorted(maps.Keys((&settings{}).fields())) {
		if d := distance(key, k); d < least {
			best, least = k, d
		}
	}
	return "the nearest known one is " + name(best) + "; see postrider run --help"
}

// distance is the number of bytes to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// set converts a value of a flag, variable or YAML file into a setting.
// Errors do not quote texts, which may hold a password.
func set(field, value any) error {
	text, isText := value.(string)
	switch f := field.(type) {
	case *string:
		if !isText {
			return fmt.Errorf("is %v: use a text, in quotes if it looks like something else", value)
		}
		*f = text
	case *int:
		n, isInt := value.(int)
		if isText {
			var err error
			n, err = strconv.Atoi(text)
			isInt = err == nil
		}
		if !isInt {
			return fmt.Errorf("is %q: use a whole number", fmt.Sprint(value))
		}
		*f = n
	case *time.Duration:
		d, err := time.ParseDuration(fmt.Sprint(value))
		if err != nil || !isText && d != 0 {
			return fmt.Errorf("is %q: use a number with a unit, such as 500ms, 15s or 1m", fmt.Sprint(value))
		}
		*f = d
	case *bool:
		b, isBool := value.(bool)
		if isText {
			var err error
			b, err = strconv.ParseBool(text)
			isBool = err == nil
		}
		if !isBool {
			return fmt.Errorf("is %q: use true or false", fmt.Sprint(value))
		}
		*f = b
	case *[]outbox.Route:
		return setRoutes(f, value)
	}
	return nil
}

func setRoutes(routes *[]outbox.Route, value any) error {
	list, ok := value.([]any)
	if text, isText := value.(string); isText {
		for s := range strings.SplitSeq(text, ",") {
			list = append(list, s)
		}
		ok = true
	}
	if !ok {
		return fmt.Errorf("is %q: use a list of routes", fmt.Sprint(value))
	}
	for _, item := range list {
		r := outbox.Route{}
		switch item := item.(type) {
		case string:
			if err := parseRoute(&r, item); err != nil {
				return err
			}
		case map[string]any:
			fields := map[string]any{"name": &r.Name, "ordered": &r.Ordered, "unordered": &r.Unordered}
			for key, v := range item {
				if fields[key] == nil {
					return fmt.Errorf("has the unknown key %q in a route: use name, ordered and unordered", key)
				}
				if err := set(fields[key], v); err != nil {
					return fmt.Errorf("has a route whose %s %w", key, err)
				}
				if n, ok := fields[key].(*int); ok && *n == 0 {
					return fmt.Errorf("has a route whose %s is 0: use 1 to 1024 lanes, or leave it out for the default", key)
				}
			}
		default:
			return fmt.Errorf("has a route %q: use NAME, NAME:ORDERED:UNORDERED or a mapping", fmt.Sprint(item))
		}
		if r.Name == "" {
			return fmt.Errorf("has a route without a name: use NAME or NAME:ORDERED:UNORDERED")
		}
		if slices.ContainsFunc(*routes, func(o outbox.Route) bool { return o.Name == r.Name }) {
			return fmt.Errorf("names the route %q twice", r.Name)
		}
		*routes = append(*routes, r)
	}
	return nil
}

// parseRoute reads NAME or NAME:ORDERED:UNORDERED.
func parseRoute(r *outbox.Route, s string) error {
	s = strings.TrimSpace(s)
	name, counts, given := strings.Cut(s, ":")
	r.Name = name
	if !given {
		return nil
	}
	ordered, unordered, both := strings.Cut(counts, ":")
	var err1, err2 error
	r.Ordered, err1 = strconv.Atoi(ordered)
	r.Unordered, err2 = strconv.Atoi(unordered)
	if !both || err1 != nil || err2 != nil {
		return fmt.Errorf("has a route %q: use NAME or NAME:ORDERED:UNORDERED with two whole numbers of lanes", s)
	}
	if r.Ordered == 0 || r.Unordered == 0 {
		return fmt.Errorf("has a route %q: use 1 to 1024 lanes of each kind, or %s alone for the default", s, name)
	}
	return nil
}
