// Package pgwire executes SQL statements on a connection of pgx: any number of them in one round trip (RoundTrip), each with its
// parameters in PostgreSQL's binary format and prepared once for each connection. It uses the lower layer of the driver, because the
// driver's encoding and scanning by reflection would cost more than all other work of the store.
//
//	Statement  an SQL text, its parameters, and what is done with the answer
//	Reader     the values of one row of an answer
//	Grid       rows of a table on their way into one insert, update or delete
//	Cells      values in the binary format
//	Texts      a cache of composed statement texts
//
// It knows nothing of jobs and steps.
package pgwire
