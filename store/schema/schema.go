// Package schema holds the tables of the SQL stores: versioned DDL per engine,
// embedded, with a table prefix and a schema of the user's choice. It imports
// nothing of Postrider and no driver.
//
// The scripts under an engine's folder are numbered from 1 and never change
// once released; an upgrade is a new file. They carry goose's "-- +goose Up"
// comment, so that deployment tooling can apply what [Script] prints.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Version is the version of the tables that this program reads and writes.
const Version = 1

// DefaultPrefix is the prefix of every table, index and sequence.
const DefaultPrefix = "postrider_"

// MaxPrefix is the longest prefix in bytes, on every engine: with it the longest
// name still fits the engine with the shortest names.
const MaxPrefix = 32

// Engine names a database family, and the folder of its scripts.
type Engine string

// The engines that have scripts.
const (
	PostgreSQL Engine = "postgres"
	SQLite     Engine = "sqlite"
	MySQL      Engine = "mysql" // and MariaDB
	Oracle     Engine = "oracle"
	SQLServer  Engine = "sqlserver"
)

// traits are what engines differ in as far as names go.
type traits struct {
	maxName     int    // bytes of an identifier
	schemas     bool   // tables can be put into a named schema
	createStmt  string // of a schema, {name} and {quoted}; "" where none is created
	open, close string // quotes of an identifier
}

var engines = map[Engine]traits{
	PostgreSQL: {maxName: 63, schemas: true, createStmt: "CREATE SCHEMA IF NOT EXISTS {quoted}", open: `"`, close: `"`},
	SQLite:     {maxName: 128, open: `"`, close: `"`},
	MySQL:      {maxName: 64, schemas: true, createStmt: "CREATE DATABASE IF NOT EXISTS {quoted}", open: "`", close: "`"},
	Oracle:     {maxName: 128, schemas: true, open: `"`, close: `"`}, // a schema is a user
	SQLServer:  {maxName: 128, schemas: true, createStmt: "IF SCHEMA_ID(N'{name}') IS NULL EXEC (N'CREATE SCHEMA {quoted}')", open: "[", close: "]"},
}

//go:embed postgres/*.sql sqlite/*.sql mysql/*.sql oracle/*.sql sqlserver/*.sql
var files embed.FS

// tables are the names after the prefix.
var tables = []string{
	"outbox", "deferred", "dead", "routes", "lanes", "lane_marks", "relays", "parked_keys", "audit", "inbox", "meta",
}

// Tables returns the names of the tables without their prefix, in the order of
// their creation.
func Tables() []string { return slices.Clone(tables) }

// Names says where the tables are. The zero value is the default prefix and no
// schema, which leaves the choice to the connection (PostgreSQL: search_path).
type Names struct {
	// Schema is an existing or new schema; "" means none. Engines without
	// schemas refuse one.
	Schema string
	// Prefix of every name; "" means [DefaultPrefix]. At most [MaxPrefix]
	// bytes.
	Prefix string
}

// Validate reports the first name that the engine or this package does not
// take: names start with a letter or an underscore and go on with letters,
// digits and underscores, all ASCII. They are quoted wherever they are used, so
// upper case is kept.
func (n Names) Validate(e Engine) error {
	t, ok := engines[e]
	if !ok {
		return fmt.Errorf("database engine %q is unknown: use one of %s", e, strings.Join(Engines(), ", "))
	}
	if err := checkName("table prefix", n.prefix(), MaxPrefix); err != nil {
		return err
	}
	if n.Schema == "" {
		return nil
	}
	if !t.schemas {
		return fmt.Errorf("schema %.80q: %s has no schemas: leave it empty and use the prefix", n.Schema, e)
	}
	return checkName("schema", n.Schema, t.maxName)
}

func checkName(what, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s %.80q has %d bytes, limit %d: use a shorter one", what, s, len(s), limit)
	}
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		letter := 'a' <= c && c <= 'z' || s[i] == '_'
		if !letter && (i == 0 || s[i] < '0' || s[i] > '9') {
			return fmt.Errorf("%s %q has the byte %q at %d: use ASCII letters, digits and underscores, and no digit first", what, s, s[i], i)
		}
	}
	return nil
}

// Engines lists the engines that have scripts.
func Engines() []string {
	var names []string
	for e := range engines {
		names = append(names, string(e))
	}
	slices.Sort(names)
	return names
}

func (n Names) prefix() string {
	if n.Prefix == "" {
		return DefaultPrefix
	}
	return n.Prefix
}

// Plain is the name with its prefix, unquoted.
func (n Names) Plain(name string) string { return n.prefix() + name }

// Qualified is the quoted name with its prefix, behind the quoted schema if
// there is one. The names must be valid.
func (n Names) Qualified(e Engine, name string) string {
	t := engines[e]
	s := t.open + n.Plain(name) + t.close
	if n.Schema != "" {
		s = t.open + n.Schema + t.close + "." + s
	}
	return s
}

// Expand replaces the placeholders of an SQL text: {name} by the qualified and
// quoted name, {=name} by the quoted name alone (an index's name in its own
// definition), {'name} by the qualified name as a string literal, {~name} by
// the bare name as one. Names are lower-case letters and underscores; anything
// else in braces stays. The names must be valid.
func (n Names) Expand(e Engine, text string) string {
	t := engines[e]
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 {
			break
		}
		j := strings.IndexByte(text[i:], '}')
		if j < 0 {
			break
		}
		token := text[i+1 : i+j]
		name := strings.TrimLeft(token, "='~")
		b.WriteString(text[:i])
		switch {
		case name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" || len(token)-len(name) > 1:
			b.WriteString(text[i : i+j+1])
		case token[0] == '=':
			b.WriteString(t.open + n.Plain(name) + t.close)
		case token[0] == '~':
			b.WriteString("'" + n.Plain(name) + "'")
		case token[0] == '\'':
			b.WriteString("'" + n.Qualified(e, name) + "'")
		default:
			b.WriteString(n.Qualified(e, name))
		}
		text = text[i+j+1:]
	}
	b.WriteString(text)
	return b.String()
}

// CreateSchema is the statement that creates the schema if it does not exist;
// "" where none is named, or the engine has it made with an account. It needs a right on the database that the other
// statements do not need.
func (n Names) CreateSchema(e Engine) string {
	if n.Schema == "" {
		return ""
	}
	t := engines[e]
	return strings.NewReplacer("{name}", n.Schema, "{quoted}", t.open+n.Schema+t.close).Replace(t.createStmt)
}

// Step is the way from one version to the next.
type Step struct {
	Version    int
	Name       string   // file name
	Text       string   // the whole file, names put in
	Statements []string // the same, one by one, without comments and semicolons
}

// Steps returns all steps of the engine by ascending version; the last one is
// [Version]. The error is that of [Names.Validate].
func Steps(e Engine, n Names) ([]Step, error) {
	if err := n.Validate(e); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, string(e))
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, entry := range entries {
		raw, err := fs.ReadFile(files, string(e)+"/"+entry.Name())
		if err != nil {
			return nil, err
		}
		var v int
		if _, err := fmt.Sscanf(entry.Name(), "%05d_", &v); err != nil || v != len(steps)+1 {
			return nil, fmt.Errorf("script %s of %s is out of sequence: expected number %d", entry.Name(), e, len(steps)+1)
		}
		text := n.Expand(e, string(raw))
		steps = append(steps, Step{Version: v, Name: entry.Name(), Text: text, Statements: split(text)})
	}
	return steps, nil
}

// Script is the DDL for an empty database up to [Version], as deployment tooling
// applies it.
func Script(e Engine, n Names) (string, error) {
	steps, err := Steps(e, n)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range steps {
		text := s.Text
		if create := n.CreateSchema(e); create != "" && s.Version == 1 {
			text = strings.Replace(text, "-- +goose Up\n", "-- +goose Up\n"+create+";\n", 1)
		}
		if s.Version > 1 {
			text = strings.Replace(text, "-- +goose Up\n", "", 1)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// split cuts a script at the lines that end with a semicolon, but for those
// between goose's marks of one statement. The scripts hold no other semicolons
// at a line's end; a test sees to it.
func split(text string) []string {
	var out []string
	var b strings.Builder
	whole := false
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		switch {
		case line == "-- +goose StatementBegin":
			whole = true
			continue
		case line == "-- +goose StatementEnd":
			whole = false
			out = append(out, strings.TrimSuffix(b.String(), ";\n"))
			b.Reset()
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "--") || line == "":
			continue
		}
		if s, ok := strings.CutSuffix(line, ";"); ok && !whole {
			b.WriteString(s)
			out = append(out, b.String())
			b.Reset()
			continue
		}
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if strings.TrimSpace(b.String()) != "" {
		out = append(out, b.String())
	}
	return out
}
