package mirror

import "testing"

// Quotes come off each part of a name, doubled ones become the name's own, and what is open or unquoted is left alone.
func TestUnquoteTable(t *testing.T) {
	for name, want := range map[string]string{
		`"Name"`: "Name", `public."My ""T"`: `public.My "T`, `"a.b"."c d"`: "a.b.c d", `plain`: "", `s.plain`: "", `"open`: "", `s."open""`: "", `""""`: `"`,
	} {
		if got, ok := unquoteTable(name); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q, %v", name, got, ok)
		}
	}
}
