package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
	"github.com/postrider/postrider/store/sqlstore"
)

func notSet(key string) error {
	return usagef("%s is not set: use %s, %s, or %s in the file of --config", key, flagName(key), envName(key), key)
}

// openStore opens the outbox of the settings. create allows a new SQLite file.
func (p *program) openStore(s *settings, create bool) (*app.Store, error) {
	if s.db == "" {
		return nil, notSet("db")
	}
	if _, err := app.ParseDatabase(s.db); err != nil {
		return nil, usagef("db: %w", err)
	}
	return app.OpenStore(p.ctx, s.db, &app.StoreOptions{Schema: s.schema, Prefix: s.prefix, Routes: s.routes, Create: create})
}

// place names where the tables of the settings are, beside the database.
func (s *settings) place() string {
	prefix := fmt.Sprintf("prefix %q", cmp.Or(s.prefix, schema.DefaultPrefix))
	if s.schema == "" {
		return prefix
	}
	return fmt.Sprintf("schema %q, %s", s.schema, prefix)
}

type migrateCmd struct {
	storeFlags
}

// Run creates or upgrades the tables.
func (*migrateCmd) Run(p *program) error {
	s, err := p.settings()
	if err != nil {
		return err
	}
	st, err := p.openStore(s, true)
	if err != nil {
		return err
	}
	defer st.Close()
	// A wrong name makes tables that nobody looks for: it is said that they are new.
	did := "tables at"
	if _, err := st.Inspect(p.ctx, time.Now()); errors.Is(err, outbox.ErrSchema) {
		did = "tables created at"
	}
	if err := st.Migrate(p.ctx); err != nil {
		return err
	}
	now, err := st.ServerTime(p.ctx)
	if err != nil {
		return err
	}
	o, err := st.Inspect(p.ctx, now)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "%s, %s: %s version %d\n", st.Database.Name, s.place(), did, o.Schema)
	for _, r := range o.Routes {
		fmt.Fprintf(p.stdout, "route %s: %d ordered lanes, %d unordered\n", r.Name, r.Ordered, r.Unordered)
	}
	return nil
}

type schemaCmd struct {
	storeFlags
	Engine string `placeholder:"ENGINE" help:"postgres, mysql or mariadb, oracle, sqlserver or sqlite. Default: the engine of --db."`
}

// Run prints the script. It connects to nothing.
func (c *schemaCmd) Run(p *program) error {
	s, err := p.settings()
	if err != nil {
		return err
	}
	engine := c.Engine
	if engine == "" {
		if s.db == "" {
			return usagef("engine is not set: use --engine postgres, mysql, oracle, sqlserver or sqlite, or name a database with --db")
		}
		d, err := app.ParseDatabase(s.db)
		if err != nil {
			return usagef("db: %w", err)
		}
		engine = d.Engine
	}
	if engine == "mariadb" {
		engine = app.MySQL
	}
	dialect := app.Dialect(engine)
	if dialect == nil {
		return usagef("--engine is %q: use postgres, mysql, oracle, sqlserver or sqlite", engine)
	}
	script, err := sqlstore.Script(dialect, &sqlstore.Options{Schema: s.schema, Prefix: s.prefix, Routes: s.routes})
	if err != nil {
		return &usageError{err}
	}
	_, err = fmt.Fprintln(p.stdout, script)
	return err
}
