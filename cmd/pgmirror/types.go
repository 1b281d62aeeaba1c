package main

import (
	"errors"
	"fmt"
	"strings"

	"pgmirror/pgcdc"
)

// parseTypes reads schema.table.column=form, several separated by commas. A name is as the catalogue has it: nothing is folded, and a part with a
// point or another sign of its own stands in double quotes.
func parseTypes(v string) (map[pgcdc.ColumnName]pgcdc.Form, error) {
	types := map[pgcdc.ColumnName]pgcdc.Form{}
	parts, err := splitQuoted(v, ',')
	if err != nil {
		return nil, err
	}
	var faults []error
	for i := 0; i < len(parts); i++ {
		part := parts[i]
		if form := part[strings.LastIndexByte(part, '=')+1:]; strings.Contains(form, "(") && !strings.Contains(form, ")") && i+1 < len(parts) { // decimal(p,s)
			i++
			part += "," + parts[i]
		}
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, form, err := parseType(part)
		if _, twice := types[name]; err == nil && twice {
			err = fmt.Errorf("%s is named twice", name)
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		types[name] = form
	}
	return types, errors.Join(faults...)
}

// parseType reads one column and its form.
func parseType(part string) (name pgcdc.ColumnName, form pgcdc.Form, err error) {
	part = strings.TrimSpace(part)
	sides, err := splitQuoted(part, '=')
	if err != nil {
		return name, form, err
	}
	if len(sides) != 2 {
		return name, form, fmt.Errorf("%q is not schema.table.column and a form", part)
	}
	names, err := splitQuoted(sides[0], '.')
	if err != nil {
		return name, form, err
	}
	if len(names) != 3 {
		return name, form, fmt.Errorf("%q is not schema.table.column", strings.TrimSpace(sides[0]))
	}
	for i, to := range []*string{&name.Schema, &name.Table, &name.Column} {
		if *to, err = unquoteName(names[i]); err != nil {
			return name, form, err
		}
	}
	if form, err = pgcdc.ParseForm(strings.TrimSpace(sides[1])); err != nil {
		return name, form, fmt.Errorf("%s: %w", name, err)
	}
	return name, form, nil
}
