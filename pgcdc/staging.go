package pgcdc

type staging struct{}
