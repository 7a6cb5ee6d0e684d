// The commands: what a client asks for, done on the keyspace.
#ifndef COMMAND_H
#define COMMAND_H

#include "client.h"

// Does the client's command and replies. False if the server is to end.
bool command_do(struct client *client);

#endif
