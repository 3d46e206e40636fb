// Package schema is what ent's code is generated from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is a row of the table orders.
type Order struct{ ent.Schema }

// Fields implements ent.Interface.
func (Order) Fields() []ent.Field { return []ent.Field{field.String("id")} }
