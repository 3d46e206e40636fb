// Package ent is what ent makes of the schema of an order: go generate writes it
// again.
package ent

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema
