package readstate

import (
	"cmp"
	"slices"
)

func (n TableName) String() string { return n.Schema + "." + n.Name }

// Compare orders names by schema, then name, in byte order.
func (n TableName) Compare(other TableName) int {
	return cmp.Or(cmp.Compare(n.Schema, other.Schema), cmp.Compare(n.Name, other.Name))
}

// Table finds a table by its exact name.
func (s *State) Table(name TableName) (*Table, bool) {
	at, found := slices.BinarySearchFunc(s.Tables, name, func(t *Table, name TableName) int { return t.Name.Compare(name) })
	if !found {
		return nil, false
	}
	return s.Tables[at], true
}
