package pgcdc

import "testing"

// A deferrable primary key is told apart: inside a transaction two rows may have it.
func TestDeferrableKey(t *testing.T) {
	for _, immediate := range []bool{true, false} {
		r := &relationRow{table: Table{Schema: "public", Name: "t", Kind: 'r', Persistence: 'p', Identity: IdentityFull}, readable: true, published: &published{by: []publishedBy{{publication: "p"}}},
			attributes: []attributeRow{{attNum: 1, name: "id", typeOID: 23, typeMod: -1, notNull: true}},
			indexes:    []indexRow{{primary: true, immediate: immediate, valid: true, keys: []int16{1}}}}
		r.complete(newTypeCatalog(nil))
		if len(r.table.Key) != 1 || r.table.KeyDeferrable == immediate {
			t.Errorf("immediate %v: key %v, deferrable %v", immediate, r.table.Key, r.table.KeyDeferrable)
		}
	}
}
